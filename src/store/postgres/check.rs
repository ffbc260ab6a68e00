//! What can be seen of a server, and of the rights of its user there, before a store is used. Nothing is made.

use super::Postgres;
use super::open::{never, skew};
use super::session::{Answer, Session, no_row, quoted, text};
use crate::store::{Checked, Database, StoreError};

/// The oldest server that ends the session of a holder that is cut off by itself.
const GOOD_SERVER: i32 = 140_000;

/// What a look at the server is worth saying: what it is, why this user could not run jobs, and what the server lacks.
pub fn check(database: &Database, environment: Option<&str>) -> Result<Checked, StoreError> {
    let (mut store, found) = Postgres::connect(database, never())?;
    // Behind a pooler it is the pooler's own connection that the server knows of.
    let is_direct = store.ask(|session| Ok(session.is_own))?;
    store.refuse_pooler()?;
    let place = store.server.place.clone();
    if let Some(schema) = &found.schema {
        schema.refuse_newer(&place)?;
        schema.refuse_other(&place, environment)?;
    }
    let server = store.ask(move |session| about(session, is_direct))?;
    let schema = database.schema.clone();
    let has_store = found.schema.is_some();
    let rights = store.ask(move |session| rights(session, &schema, has_store))?;
    let cannot = rights.lack(&database.schema, has_store);
    Ok(Checked {
        cannot: cannot.map(|(lack, way_out)| StoreError::new(&place, lack).hint(way_out)),
        lacks: lacks(found.version)
            .into_iter()
            .chain(skew(found.now))
            .collect(),
        server: Some(server),
    })
}

fn lacks(version: i32) -> Option<String> {
    (version < GOOD_SERVER).then(|| {
        format!(
            "the server is PostgreSQL {}: before 14 it has no `idle_session_timeout`, so a host that is cut off or frozen \
             may keep its session (not its lease) for longer",
            version / 10_000
        )
    })
}

/// `PostgreSQL 17.2, connection encrypted (TLSv1.3)`.
fn about(session: &mut Session, is_direct: bool) -> Answer<String> {
    let sql = "SELECT current_setting('server_version'), inet_server_addr() IS NULL,
                      (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl)";
    let rows = session.query(sql, &[])?;
    let row = rows.first().ok_or_else(|| no_row("the server"))?;
    let version: &str = row.try_get(0)?;
    // Some distributions add their own: `15.8 (Debian 15.8-0+deb12u1)`.
    let version = version.split(' ').next().unwrap_or(version);
    let connection = match (
        is_direct,
        row.try_get(1)?,
        row.try_get::<_, Option<&str>>(2)?,
    ) {
        (false, _, _) => ", behind a pooler".to_owned(),
        (true, true, _) => ", through a socket on this host".to_owned(),
        (true, false, Some(tls)) => format!(", connection encrypted ({tls})"),
        (true, false, None) => ", connection not encrypted".to_owned(),
    };
    Ok(format!("PostgreSQL {version}{connection}"))
}

/// What the role may do, and what stands in the way.
struct Rights {
    may: bool,
    role: String,
    database: String,
    /// The owner of the schema, if there is one.
    owner: Option<String>,
}

fn rights(session: &mut Session, schema: &str, has_store: bool) -> Answer<Rights> {
    let may = if has_store {
        "has_schema_privilege(to_regnamespace($1)::oid, 'USAGE') AND has_table_privilege($1 || '.task', 'INSERT, UPDATE')"
    } else {
        "coalesce(has_schema_privilege(to_regnamespace($1)::oid, 'CREATE')
                      AND has_schema_privilege(to_regnamespace($1)::oid, 'USAGE'),
                  has_database_privilege(current_database(), 'CREATE'))"
    };
    let sql = format!(
        "SELECT {may}, quote_ident(current_user), quote_ident(current_database()),
                (SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE oid = to_regnamespace($1)::oid)"
    );
    let schema = quoted(schema);
    let rows = session.query(&sql, &[text(&schema)])?;
    let row = rows.first().ok_or_else(|| no_row("rights"))?;
    Ok(Rights {
        may: row.try_get(0)?,
        role: row.try_get(1)?,
        database: row.try_get(2)?,
        owner: row.try_get(3)?,
    })
}

impl Rights {
    /// What the role may not do that jobrun has to, and the statement that mends it.
    fn lack(&self, schema: &str, has_store: bool) -> Option<(String, String)> {
        let Self {
            may,
            role,
            database,
            owner,
        } = self;
        let name = quoted(schema);
        if *may {
            return None;
        }
        Some(match owner {
            None => (
                format!(
                    "there is no store yet, and its role {role} may not make the schema {name}"
                ),
                format!(
                    "in the database {database}, its owner or a superuser can: `CREATE SCHEMA {name} AUTHORIZATION {role};`"
                ),
            ),
            Some(owner) if has_store => (
                format!("its role {role} may not write the tables in the schema {name}"),
                format!(
                    "connect as {owner}, whose schema it is, or let a superuser do: `GRANT {owner} TO {role};`"
                ),
            ),
            Some(_) => (
                format!(
                    "there is no store yet, and its role {role} may not make tables in the schema {name}"
                ),
                format!(
                    "in the database {database}, a superuser can: `ALTER SCHEMA {name} OWNER TO {role};`"
                ),
            ),
        })
    }
}
