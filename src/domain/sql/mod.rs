//! STUB until merged.
#![allow(missing_docs, dead_code)]
use std::ops::Range;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Postgres,
    Sqlite,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    Slot,
    IntervalStart,
    IntervalEnd,
    Key,
    Keys,
    Payload,
    Task,
    Attempt,
}
impl Parameter {
    pub fn word(self) -> &'static str {
        "x"
    }
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub text: String,
    pub parameters: Vec<Parameter>,
}
impl Statement {
    pub fn has_rows(&self) -> bool {
        false
    }
    pub fn locate(&self, p: usize) -> (usize, usize) {
        (1, p)
    }
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub statements: Vec<Statement>,
}
impl Script {
    pub fn parse(text: &str, _d: Dialect) -> Result<Script, Vec<Fault>> {
        Ok(Script {
            statements: vec![Statement {
                text: text.into(),
                parameters: vec![],
            }],
        })
    }
    pub fn parse_query(text: &str, d: Dialect) -> Result<Script, Vec<Fault>> {
        Self::parse(text, d)
    }
    pub fn uses(&self, p: Parameter) -> bool {
        self.statements.iter().any(|s| s.parameters.contains(&p))
    }
}
pub struct Fault {
    pub at: Range<usize>,
    pub message: String,
    pub hint: Option<String>,
}
