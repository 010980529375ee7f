//! How a matrix reaches attached servers: certificates, several addresses, reuse of connections, retries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::authority::Authority;
use crate::fake::{Conduct, Fake};
use crate::harness::{Bench, Ran};
use crate::server::Server;

const SIM: [&str; 4] = ["--preset", "fast", "--dialect", "vllm"];

/// A load of 12 requests, with further keys.
fn load(keys: &str) -> String {
    format!(
        "  - load: {{ dataset: random, prompts: 12, input_len: 40, output_len: 4, concurrency: 2, range_ratio: 1.0, warmup: 0{keys} }}\n"
    )
}

/// A matrix on an attached engine with these keys.
fn matrix(engine: &str, scenarios: &str) -> String {
    format!(
        "name: t\nengines:\n  - attach: {{ as: a, {engine} }}\nmodels:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}datasets: {{ sharegpt: data/conversations.json }}\n"
    )
}

/// The summary of the only cell, as it is on disk.
fn stored(bench: &Bench) -> Value {
    let cells = fs::read_dir(bench.run_folder().join("cells")).expect("there are cells");
    let mut summaries: Vec<Value> = cells
        .map(|cell| find_summary(&cell.expect("it can be read").path()))
        .collect();
    assert_eq!(summaries.len(), 1);
    summaries.remove(0)
}

/// The records of the only cell.
fn requests(bench: &Bench) -> Vec<Value> {
    let run = bench.finished();
    let start = &run.plan.starts[0];
    let records = run.read_requests(&start.cells[0]).expect("requests are kept");
    let records = records.iter().map(serde_json::to_value);
    records.collect::<Result<_, _>>().expect("they are JSON on disk")
}

fn find_summary(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("summary.json")).expect("the cell is finished");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The digest by which the cell is found again.
fn digest(bench: &Bench) -> Value {
    let plan = bench.call(&["plan", "matrices/m.yaml", "--json"]).exits(0);
    let plan: Value = serde_json::from_str(&plan.stdout).expect("it is JSON");
    plan["cells"][0]["content"].clone()
}

fn check(bench: &Bench) -> Ran {
    bench.call(&["check", "matrices/m.yaml"])
}

fn port(server: &Server) -> u16 {
    let url = server.url();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    port.expect("the url ends in a port")
}

#[test]
fn a_server_of_an_own_authority_is_measured_with_its_ca_and_a_client_certificate() {
    let server = Server::start(&SIM);
    let (authority, stranger) = (Authority::new(), Authority::new());
    for signer in [&authority, &stranger] {
        signer.sign("server", "localhost", 2999);
        signer.sign("client", "client", 2999);
    }
    let (open, closed) = (
        authority.proxy("server", port(&server), false),
        authority.proxy("server", port(&server), true),
    );
    let with = |to: u16, tls: &str| {
        let tls = match tls {
            "" => String::new(),
            tls => format!(", tls: {{ {tls} }}"),
        };
        let bench = Bench::of(&matrix(
            &format!("url: \"https://localhost:{to}\"{tls}"),
            &load(""),
        ));
        // Relative paths are below the folder of the matrix file.
        let files = bench.matrix().with_file_name("tls");
        fs::create_dir(&files).expect("the folder is new");
        for (signer, prefix) in [(&authority, ""), (&stranger, "other-")] {
            for name in ["ca.pem", "client.pem", "client.key"] {
                fs::copy(signer.file(name), files.join(format!("{prefix}{name}"))).expect("it was written");
            }
        }
        bench
    };
    let bench = with(open, "ca_file: tls/ca.pem");
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("TLS: `ca_file` tls/ca.pem");
    bench.run(&[]).exits(0).shows("12/0");
    // The CAs of this machine, and those of another authority, have not signed its certificate.
    with(open, "")
        .run(&[])
        .exits(4)
        .says("UnknownIssuer")
        .says("`tls: { ca_file: FILE }`");
    with(open, "ca_file: tls/other-ca.pem")
        .run(&[])
        .exits(4)
        .says("invalid peer certificate");
    let bench = with(open, "insecure: true");
    let note = "the certificate of the server is not checked (`insecure`)";
    bench.call(&["plan", "matrices/m.yaml"]).exits(0).shows(note);
    bench
        .run(&[])
        .exits(0)
        .shows("the certificate of the server was not checked (`insecure`)");
    let identity = |prefix: &str| {
        format!(
            "ca_file: tls/ca.pem, client_cert: tls/{prefix}client.pem, client_key: tls/{prefix}client.key"
        )
    };
    with(closed, &identity("")).run(&[]).exits(0).shows("12/0");
    with(closed, &identity("other-"))
        .run(&[])
        .exits(4)
        .says("refused the client certificate");
    with(closed, "ca_file: tls/ca.pem")
        .run(&[])
        .exits(4)
        .says("client certificate");
}

#[test]
fn several_servers_share_a_load_as_balance_says() {
    let servers = [Server::start(&SIM), Server::start(&SIM)];
    let urls = format!("urls: [\"{}\", \"{}\"]", servers[0].url(), servers[1].url());
    let mut digests = Vec::new();
    for balance in ["round-robin", "least-loaded", "sticky"] {
        // Conversations need a protocol with messages.
        let variant = if balance == "sticky" {
            ", variant: chat"
        } else {
            ""
        };
        let engine = format!("{urls}, balance: {balance}{variant}");
        let conversations = "  - load: { dataset: generated-shared-prefix, output_len: 4, concurrency: 4, warmup: 0, shared_prefix: { groups: 4, prompts_per_group: 2, turns: 3, system_len: 16, question_len: 16 } }\n";
        let scenarios = match balance {
            "sticky" => conversations.to_owned(),
            _ => load(""),
        };
        let bench = Bench::of(&matrix(&engine, &scenarios));
        bench
            .call(&["plan", "matrices/m.yaml"])
            .exits(0)
            .shows(&format!(
                "{} and {}, {balance}",
                servers[0].url(),
                servers[1].url()
            ))
            .shows(&format!(
                "the 2 servers of this engine share the load ({balance})"
            ));
        let ran = bench.run(&[]).exits(0);
        let endpoints = stored(&bench)["connections"]["endpoints"].clone();
        let sent: Vec<u64> = (0..2)
            .map(|place| endpoints[place]["requests"].as_u64().expect("it is counted"))
            .collect();
        let total = if balance == "sticky" { 24 } else { 12 };
        assert_eq!(sent.iter().sum::<u64>(), total, "{endpoints}");
        assert!(sent.iter().all(|sent| *sent > 0), "{endpoints}");
        if balance == "round-robin" {
            assert_eq!(sent, [6, 6]);
        }
        for (server, sent) in servers.iter().zip(&sent) {
            let ran = ran.stdout.clone();
            let note = format!("`{}` got {sent} requests", server.url());
            assert!(ran.contains(&note), "{ran}");
        }
        if balance == "sticky" {
            let mut servers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for request in requests(&bench) {
                let number = |value: &Value| value.as_u64().expect("it is a number");
                // The rounds of a conversation follow one another.
                let conversation = servers.entry(number(&request["index"]) / 3).or_default();
                conversation.insert(number(&request["connection"]["endpoint"]));
            }
            assert_eq!(servers.len(), 8);
            assert!(servers.values().all(|servers| servers.len() == 1), "{servers:?}");
        }
        digests.push(digest(&Bench::of(&matrix(&engine, &load("")))));
    }
    digests.push(digest(&Bench::of(&matrix(
        &format!("url: \"{}\"", servers[0].url()),
        &load(""),
    ))));
    digests.sort_by_key(Value::to_string);
    digests.dedup();
    assert_eq!(digests.len(), 4, "each is another cell");
}

#[test]
fn reused_connections_and_retries_are_counted_and_other_cells() {
    // The first request of the load is turned away twice; the probe came before it.
    let turning_away = Conduct {
        answer: |asked, answer| {
            if [2, 3].contains(&asked.number) {
                answer.status = 503;
            }
        },
        ..Conduct::at(5, 1)
    };
    let one_by_one = |keys: &str| load(keys).replace("concurrency: 2", "concurrency: 1");
    let fake = Fake::start(turning_away);
    let bench = Bench::of(&matrix(
        &format!("url: \"{}\"", fake.url()),
        &one_by_one(", retries: 2"),
    ));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("at most 2 retries after 429 or 503");
    let retried = "1 requests were sent again after status 429 or 503, 2 times in total (`retries`)";
    bench.run(&[]).exits(0).shows("12/0").shows(retried);
    let counts = stored(&bench)["connections"].clone();
    assert_eq!(
        counts,
        json!({"requests": 12, "retries": {"limit": 2, "requests": 1, "retries": 2}})
    );
    bench.call(&["explain", "engine=a"]).exits(0).shows("connections");
    let retrying = digest(&bench);
    // Without retries the same answers are failures.
    let fake = Fake::start(turning_away);
    let bench = Bench::of(&matrix(&format!("url: \"{}\"", fake.url()), &one_by_one("")));
    bench.run(&[]).exits(3).shows("10/2");
    assert_eq!(stored(&bench).get("connections"), None);
    let server = Server::start(&SIM);
    let url = format!("url: \"{}\"", server.url());
    let bench = Bench::of(&matrix(&url, &load(", connections: reuse")));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("connections reused");
    let ran = bench.run(&[]).exits(0);
    // Two at a time: 10, unless one begins before the end of another is read.
    let reused = stored(&bench)["connections"]["reuse"]["reused"]
        .as_u64()
        .expect("it is counted");
    assert!((7..=10).contains(&reused), "{reused}");
    assert!(
        ran.stdout.contains(&format!(
            "connections were reused by {reused} of 12 requests (`connections: reuse`)"
        )),
        "{}",
        ran.stdout
    );
    let (reusing, plain) = (digest(&bench), digest(&Bench::of(&matrix(&url, &load("")))));
    assert!(reusing != plain && retrying != reusing);
}

#[test]
fn keys_that_contradict_each_other_or_have_no_effect_are_refused() {
    let authority = Authority::new();
    authority.sign("client", "client", 2999);
    let file = |name: &str| authority.file(name).display().to_string();
    let (ca, certificate) = (file("ca.pem"), file("client.pem"));
    let https = "url: \"https://localhost:9\"";
    for (engine, why) in [
        (
            format!("{https}, tls: {{ ca_file: no/such.pem }}"),
            "no/such.pem` cannot be read",
        ),
        (
            format!("{https}, tls: {{ ca_file: data/tokenizer.json }}"),
            "has no certificate in PEM form",
        ),
        (
            format!("{https}, tls: {{ client_cert: {certificate} }}"),
            "give `client_key`",
        ),
        (
            format!("{https}, tls: {{ client_key: {certificate} }}"),
            "give `client_cert`",
        ),
        (
            format!("{https}, tls: {{ insecure: true, ca_file: {ca} }}"),
            "contradict each other",
        ),
        (format!("{https}, tls: {{ ca: {ca} }}"), "ca_file"),
        (
            format!("url: \"http://localhost:9\", tls: {{ ca_file: {ca} }}"),
            "this has no effect: `ca_file`",
        ),
        (
            format!("{https}, balance: sticky"),
            "distributes requests over several servers, but there is only one",
        ),
        (
            "urls: [\"http://localhost:9\"], balance: sticky".to_owned(),
            "distributes requests over several servers, but there is only one",
        ),
        (
            format!("{https}, urls: [\"http://localhost:9\"]"),
            "has both `url` and `urls`",
        ),
        (
            "urls: [\"http://localhost:9\", \"http://localhost:9\"]".to_owned(),
            "twice",
        ),
        (
            "urls: [\"http://localhost:9\", \"http://LOCALHOST:9/\"]".to_owned(),
            "twice",
        ),
        (
            "urls: [\"http://localhost:9\", \"localhost:8\"]".to_owned(),
            "did you mean `http://localhost:8`?",
        ),
        ("urls: []".to_owned(), "has no address"),
        (format!("{https}, balance: random"), "least-loaded"),
        (
            format!("{https}, routing_key_header: \"a b\""),
            "may contain only letters",
        ),
        (
            format!("{https}, routing_key_header: Host"),
            "for another purpose",
        ),
        (
            format!("{https}, routing_key_header: X-Id, headers: {{ x-id: \"1\" }}"),
            "the same value in all requests",
        ),
    ] {
        check(&Bench::of(&matrix(&engine, &load("")))).exits(2).says(why);
    }
    for (keys, why) in [(", connections: keep", "reuse"), (", retries: -1", "retries")] {
        let bench = Bench::of(&matrix("url: \"http://localhost:9\"", &load(keys)));
        check(&bench).exits(2).says(why);
    }
    let started = matrix("url: \"http://localhost:9\"", &load("")).replace(
        "attach: { as: a, url: \"http://localhost:9\" }",
        "sim: { as: a, urls: [\"http://localhost:9\"], balance: sticky, tls: { insecure: true } }",
    );
    let ran = check(&Bench::of(&started)).exits(2);
    for key in ["urls", "balance", "tls"] {
        let why = format!("`{key}` describes an attached server, but `matrix` starts `a` itself");
        assert!(ran.stderr.contains(&why), "{}", ran.stderr);
    }
}
