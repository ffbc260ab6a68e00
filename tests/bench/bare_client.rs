//! What a start on PostgreSQL is measured against: a whole process that connects, asks for one thing and exits.

use postgres::{Client, NoTls};

fn main() {
    let url = std::env::args().nth(1).expect("the URL of a database");
    let mut client = Client::connect(&url, NoTls).expect("a session");
    client.query_one("SELECT 1", &[]).expect("an answer");
}
