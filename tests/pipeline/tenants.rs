//! Owners of stores: equal ids of two tenants are two stores, two requests, two turns.

use super::support::{Night, Turn, turn};

/// Store `home`, session `s`, turns `t0` and on, whoever it is; only the texts are the tenant's own.
fn turns_of(tenant: &str, count: usize) -> Vec<Turn> {
    let said = |i: usize| {
        let at = format!("2024-03-01T10:{i:02}:00Z");
        let text = format!("the kettle number {i} is in the {tenant} house");
        Turn { tenant: Some(tenant.into()), ..turn("home", "s", &format!("t{i}"), &at, &text) }
    };
    (0..count).map(said).collect()
}

const QUESTION: (&str, &str, &str, Option<&str>) = ("home", "q", "which kettle is in the house", None);

/// North has turns 0 to 13, south 0 to 11.
fn night(tenants: &[(&str, usize)]) -> Night {
    let night = Night::new();
    let turns: Vec<Turn> = tenants.iter().flat_map(|(t, n)| turns_of(t, *n)).collect();
    let requests: Vec<_> = tenants.iter().map(|(t, _)| (Some(*t), QUESTION)).collect();
    night.turns(&turns).requests_of(&requests);
    night
}

const BOTH: [(&str, usize); 2] = [("north", 14), ("south", 12)];

fn run(night: &Night) -> super::support::Ran {
    // One shard: what keeps them apart is their id and not the file that they lie in.
    night.run(&["--set", "shards=1"]).ends_with(0)
}

#[test]
fn each_tenant_has_what_it_would_have_alone() {
    let both = night(&BOTH);
    run(&both);
    for (tenant, count) in BOTH {
        let alone = night(&[(tenant, count)]);
        run(&alone);
        for table in ["turns", "requests", "pools", "features", "rankings", "slates"] {
            let sorted = |mut rows: Vec<Vec<String>>| {
                rows.sort();
                rows
            };
            let mine = sorted(both.rows(&format!("SELECT * FROM {table} WHERE tenant_id = '{tenant}'")));
            let rows = if matches!(table, "requests" | "slates") { 1 } else { count };
            assert_eq!(mine.len(), rows, "{tenant}: {table}");
            assert_eq!(mine, sorted(alone.rows(&format!("SELECT * FROM {table}"))), "{tenant}: {table}");
        }
    }
}

#[test]
fn a_reader_names_the_tenant() {
    let night = night(&BOTH);
    run(&night);
    let of = ["--store", "home", "--request", "q"];
    for (tenant, other) in [("north", "south"), ("south", "north")] {
        for command in ["show", "explain"] {
            let told = night.on_lake(command, &[&of[..], &["--tenant", tenant]].concat()).ends_with(0).stdout;
            assert!(!told.contains(&format!("the {other} house")), "{command}: {told}");
        }
        let shown = night.on_lake("show", &[&of[..], &["--tenant", tenant]].concat()).stdout;
        assert!(shown.contains(&format!("the {tenant} house")), "{shown}");
    }
    // Without a tenant it is the one that has no name, and that one has no store here.
    let gone = night.on_lake("show", &of).ends_with(1).stderr;
    assert!(gone.contains("--tenant"), "{gone}");
}

#[test]
fn labels_are_looked_up_in_their_tenants_store() {
    let night = night(&BOTH);
    // Turn 13 is a turn of north only: south's label names a turn that is not there.
    night.labels_of(&[(Some("north"), ("home", "q", "t13")), (Some("south"), ("home", "q", "t13"))]);
    run(&night);
    let report = night.on_lake("eval", &["--json"]).ends_with(0).json();
    assert_eq!(report["warnings"]["labels_without_turn"], 1);
    let all = report["splits"].as_array().unwrap().iter().find(|s| s["split"] == "all").unwrap().clone();
    let count = |field: &str| all[field].as_u64().unwrap();
    assert_eq!((count("requests"), count("without_evidence"), count("slates")), (2, 1, 2));
    assert_eq!((all["classes"][0]["n"].as_u64(), all["classes"][0]["slate"]["value"].as_f64()), (Some(1), Some(1.0)));
}

#[test]
fn news_of_one_tenant_leaves_the_other_as_it_is() {
    let night = night(&BOTH);
    run(&night);
    let north = "SELECT * FROM slates WHERE tenant_id = 'north'";
    let before = night.rows(north);
    let mut turns = [turns_of("north", 14), turns_of("south", 12)].concat();
    turns[20].content = Some("the kettle number 6 is in the attic".into());
    night.turns(&turns);
    let ran = run(&night);
    for table in ["turns", "pools", "features", "rankings", "slates"] {
        assert_eq!((ran.table(table, "stores_computed"), ran.table(table, "stores_kept")), (1, 1), "{table}");
    }
    assert_eq!(night.rows(north), before);
    assert_eq!(night.column("SELECT tenant_id FROM slates WHERE text LIKE '%in the attic%'"), ["south"]);
}
