//! Typed values out of the tree, each with its place.

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Reader;
use super::{RawWork, Text};

impl Reader<'_> {
    pub(super) fn wrong_type(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        hint: Option<String>,
    ) {
        let found = value.get_ref().type_str();
        self.fault(
            value.span(),
            format!("`{key}` must be {wanted}, not {found}"),
            hint,
        );
    }

    pub(super) fn text(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<Text> {
        if let Some(text) = value.get_ref().as_str() {
            return Some(Spanned::new(value.span(), text.to_owned()));
        }
        self.wrong_type(
            key,
            value,
            "a string",
            Some(format!("for example `{key} = {example}`")),
        );
        None
    }

    /// A string, or a list of them.
    pub(super) fn texts(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<Vec<Text>> {
        match value.get_ref() {
            DeValue::Array(items) => Some(
                items
                    .iter()
                    .filter_map(|item| self.text(key, item, example))
                    .collect(),
            ),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => self.text(key, value, example).map(|text| vec![text]),
        }
    }

    pub(super) fn argv(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Spanned<Vec<Text>>> {
        match value.get_ref() {
            DeValue::Array(items) => {
                let words = items
                    .iter()
                    .filter_map(|item| self.text("command", item, "[\"echo\", \"hi\"]"));
                let words: Vec<Text> = words.collect();
                (words.len() == items.len()).then(|| Spanned::new(value.span(), words))
            }
            DeValue::String(line) => {
                let words: Vec<String> = line
                    .split_whitespace()
                    .map(|word| format!("{word:?}"))
                    .collect();
                let hint = format!(
                    "write `command = [{}]` to run it without a shell, or `shell = {line:?}` to run it with one",
                    words.join(", ")
                );
                self.fault(
                    value.span(),
                    "`command` must be an array of words, not string".into(),
                    Some(hint),
                );
                None
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Table(_) => {
                self.wrong_type("command", value, "an array of words", None);
                None
            }
        }
    }

    pub(super) fn duration(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        if let Some(number) = value.get_ref().as_integer() {
            let hint = format!(
                "write the unit: `{key} = \"{0}s\"` or `{key} = \"{0}m\"`",
                number.as_str()
            );
            self.fault(
                value.span(),
                format!("`{key}` is a number without a unit"),
                Some(hint),
            );
            return None;
        }
        self.text(key, value, "\"90s\"")
    }

    pub(super) fn durations(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<Text>> {
        let Some(items) = value.get_ref().as_array() else {
            let hint = Some(format!("for example `{key} = [\"1m\", \"5m\"]`"));
            self.wrong_type(key, value, "an array of durations", hint);
            return None;
        };
        Some(
            items
                .iter()
                .filter_map(|item| self.duration(key, item))
                .collect(),
        )
    }

    pub(super) fn integer(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Spanned<i64>> {
        let parsed = value
            .get_ref()
            .as_integer()
            .and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
        if parsed.is_none() {
            self.wrong_type(key, value, "a whole number", None);
        }
        parsed.map(|number| Spanned::new(value.span(), number))
    }

    pub(super) fn boolean(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Spanned<bool>> {
        let parsed = value.get_ref().as_bool();
        if parsed.is_none() {
            self.wrong_type(key, value, "`true` or `false`", None);
        }
        parsed.map(|parsed| Spanned::new(value.span(), parsed))
    }

    /// A command beside the work: an array of words, or a text for the shell.
    pub(super) fn work(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<Spanned<RawWork>> {
        if let Some(script) = value.get_ref().as_str() {
            return Some(Spanned::new(
                value.span(),
                RawWork::Shell(script.to_owned()),
            ));
        }
        let words = self.texts(key, value, example)?;
        Some(Spanned::new(value.span(), RawWork::Command(words)))
    }

    pub(super) fn integers(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Vec<Spanned<i64>>> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(
                key,
                value,
                "an array of numbers",
                Some(format!("for example `{key} = [0]`")),
            );
            return None;
        };
        Some(
            items
                .iter()
                .filter_map(|item| self.integer(key, item))
                .collect(),
        )
    }

    /// A number of rows, or from how many to how many, as text.
    pub(super) fn rows(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        if value.get_ref().as_integer().is_some() {
            let number = self.integer(key, value)?;
            return Some(Spanned::new(value.span(), number.get_ref().to_string()));
        }
        let Some(text) = value.get_ref().as_str() else {
            let hint = Some(format!("for example `{key} = 1` or `{key} = \"0-1\"`"));
            self.wrong_type(key, value, "a number of rows", hint);
            return None;
        };
        Some(Spanned::new(value.span(), text.to_owned()))
    }

    /// A date-time, quoted or as TOML's own type.
    pub(super) fn date_time(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Text> {
        match value.get_ref().as_datetime() {
            Some(date_time) => Some(Spanned::new(value.span(), date_time.to_string())),
            None => self.text(key, value, "\"2026-01-01T00:00\""),
        }
    }

    /// A day, or a list of them; a date may be quoted or TOML's own type.
    pub(super) fn days(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Text>> {
        let mut day = |item: &Spanned<DeValue<'_>>| match item.get_ref().as_datetime() {
            Some(date) => Some(Spanned::new(item.span(), date.to_string())),
            None => self.text(key, item, "[\"2026-12-25\", \"12-25\", \"sat\"]"),
        };
        match value.get_ref().as_array() {
            Some(items) => Some(items.iter().filter_map(day).collect()),
            None => day(value).map(|day| vec![day]),
        }
    }

    pub(super) fn env(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<(Text, Text)>> {
        if !value.get_ref().is_table() {
            let hint = Some("for example `env = { PATH = \"/usr/bin:/bin\" }`".to_owned());
            self.wrong_type("env", value, "a table of strings", hint);
            return None;
        }
        let mut variables = Vec::new();
        self.each_entry("env", value, |reader, name, value| {
            if let Some(text) = reader.text(name.get_ref(), value, "\"value\"") {
                variables.push((name.clone(), text));
            }
        });
        Some(variables)
    }
}
