//! stub
use std::path::PathBuf;
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings(String);
#[derive(Debug)]
pub struct ConnectError {
    pub message: String,
    pub hint: Option<String>,
    pub is_away: bool,
}
impl Settings {
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
    pub fn with_password_file(self, _: PathBuf) -> Self {
        self
    }
    pub fn name(&self) -> String {
        "postgres:stub".into()
    }
    pub fn has_password(&self) -> bool {
        false
    }
}
pub fn connect(settings: &Settings, name: &str) -> Result<postgres::Client, ConnectError> {
    let mut config: postgres::Config =
        settings
            .0
            .parse()
            .map_err(|e: postgres::Error| ConnectError {
                message: e.to_string(),
                hint: None,
                is_away: false,
            })?;
    config.application_name(name);
    config.connect(postgres::NoTls).map_err(|e| ConnectError {
        message: format!("{e} {:?}", std::error::Error::source(&e)),
        hint: None,
        is_away: true,
    })
}
