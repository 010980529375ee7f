//! Servers that somebody else started: the simulated engine of the build at hand, whichever binary attaches to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A simulated engine that serves the model `m`, until this is dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts one with these arguments and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_at(0, arguments)
    }

    /// The same on a port that is free.
    fn start_at(port: u16, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(["sim", "--port", &port.to_string(), "--model", "m"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the simulated engine starts");
        let log = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let port = lines
            .by_ref()
            .find_map(|line| {
                let (_, at) = line.split_once("running on http://127.0.0.1:")?;
                at.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
            })
            .expect("it says where it listens");
        // What it says from now on is taken, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    /// Stops it and starts another one at its address.
    pub fn replace(&mut self, arguments: &[&str]) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
        *self = Self::start_at(self.port, arguments);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A matrix on servers that run already: name and URL of each.
pub fn attached(servers: &[(&str, &Server)], scenarios: &str) -> String {
    let engines: String = servers
        .iter()
        .map(|(name, server)| format!("  - attach: {{ as: {name}, url: \"{}\" }}\n", server.url()))
        .collect();
    format!(
        "name: t\nengines:\n{engines}models:\n  - m: {{ tokenizer: data/tokenizer.json }}\nscenarios:\n{scenarios}datasets: {{ sharegpt: data/conversations.json }}\n"
    )
}
