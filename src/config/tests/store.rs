//! `[store]`: what belongs to which kind of store, and what is never shown.

use super::*;

fn store(text: &str) -> Target {
    config(&format!("[store]\n{text}\n")).store
}

#[test]
fn a_server_has_a_schema_a_state_directory_and_an_environment() {
    let url = "url = \"postgres://ops@db1,db2/app\"";
    let plain = store(url);
    assert!(plain.is_shared());
    assert_eq!(plain.name(), "postgres://ops@db1,db2/app");
    assert_eq!(
        (plain.state_dir.as_path(), plain.environment),
        (Path::new("/state"), None)
    );
    let full = store(&format!(
        "{url}\nschema = \"batch\"\nstate_dir = \"locks\"\nenvironment = \"prod\"\npassword_file = \"secret\""
    ));
    let Url::Postgres(database) = &full.url else {
        panic!("a server");
    };
    assert_eq!(database.schema, "batch");
    assert_eq!(full.state_dir, Path::new("/etc/jobrun/locks"));
    assert_eq!(full.environment.as_deref(), Some("prod"));
}

#[test]
fn a_file_keeps_its_locks_beside_it() {
    let store = store("url = \"sqlite:/srv/x.db\"\nenvironment = \"prod\"");
    assert_eq!(store.state_dir, Path::new("/srv/x.db.locks"));
    assert!(!store.is_shared());
    for key in ["schema", "state_dir", "password_file"] {
        let said = faults(&format!("[store]\n{key} = \"x\"\n"));
        assert!(
            said[0].contains("belongs to a PostgreSQL store"),
            "{said:?}"
        );
    }
}

#[test]
fn what_cannot_be_a_store_is_told() {
    for (line, part) in [
        ("url = \"mysql://db/app\"", "`mysql://` is not a store"),
        ("url = \"jobrun.db\"", "`jobrun.db` is not a store"),
        ("url = \"x@jobrun.db\"", "this is not a store"),
        (
            "url = \"postgres://db/app\"\nschema = \"pg_jobs\"",
            "does not begin with `pg_`",
        ),
        ("environment = \"\"", "`environment` is a name"),
        ("pasword_file = \"x\"", "unknown key"),
    ] {
        let said = faults(&format!("[store]\n{line}\n")).join("\n");
        assert!(said.contains(part), "{line}: {said}");
    }
    assert!(faults("[store]\npasword_file = \"x\"\n")[0].contains("did you mean `password_file`"));
}

// P66
#[test]
fn a_password_in_the_file_is_warned_of_and_never_shown() {
    let sound = config("[store]\nurl = \"postgres://ops:hunter22@db/app\"\n");
    let warnings = sound.faults.of(Level::Warning);
    assert_eq!(warnings.len(), 1);
    let shown = sound.faults.show(warnings[0]);
    assert!(
        shown.contains("a password is written") && !shown.contains("hunter22"),
        "{shown}"
    );
    for url in [
        "postgres://ops:hunter22@db/app?sslmod=x",
        "postgres://ops:hunter/22@db/a b?x#",
        "host=db password=hunter22 sslmod=x",
        "host=db passwort=hunter22",
        "passwort=hunter22",
        "mysql://ops:hunter22@db/app",
        "mysql:ops:hunter22@db/app",
        "ops:hunter22@db/app",
        "postgres:ops:hunter22@db/app",
    ] {
        let Err(Error::Faults(faults)) = parsed(&format!("[store]\nurl = \"{url}\"\n")) else {
            panic!("{url} is no fault");
        };
        for fault in faults.of(Level::Error) {
            let shown = faults.show(fault);
            assert!(!shown.contains("hunter"), "{shown}");
        }
        let located = serde_json::to_string(&faults.located(Level::Error)).expect("JSON");
        assert!(!located.contains("hunter"), "{located}");
    }
}

#[test]
fn without_a_home_the_folder_of_locks_has_to_be_named() {
    let around = Surroundings::default();
    let text = "[store]\nurl = \"postgres://db/app\"\n";
    let error = parse(Path::new("/etc/x.toml"), text, &around, TzData::newest());
    let error = error.expect_err("refused").to_string();
    assert!(error.contains("state_dir"), "{error}");
}
