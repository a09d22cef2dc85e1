//! What an agent of another version leaves behind when it is upgraded: its files, and supervisors that live on.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use rmpv::Value;

use super::{Held, Schema};

/// To be called while the agent is down: makes the entries of its jobs, and what their supervisors say from now on, those
/// of a version. The next agent is the one of `agent`. Returns how many jobs there are.
pub fn leave_as(schema: Schema, agent_dir: &Path, agent: &Held) -> usize {
    let jobs = fs::read_dir(agent_dir.join("spool/jobs")).expect("the agent has a spool");
    let mut n_jobs = 0;
    for entry in jobs.map(|entry| entry.expect("readable").path()) {
        for name in ["entry", "result"] {
            rewrite(&entry.join(name), schema);
        }
        let (socket, real) = (entry.join("control.sock"), entry.join("control.real"));
        if !real.exists() && UnixStream::connect(&socket).is_ok() {
            fs::rename(&socket, &real).expect("it is ours");
            stand_between(&socket, &real, schema, agent);
            n_jobs += 1;
        }
    }
    n_jobs
}

fn rewrite(path: &Path, schema: Schema) {
    let Ok(text) = fs::read(path) else { return };
    if let Some(text) = rewritten(&text, &|value| schema.write(value)) {
        fs::write(path, text).expect("it is ours");
    }
}

/// JSON as another version would have it; none of what is no JSON.
fn rewritten(text: &[u8], change: &dyn Fn(&mut Value)) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    change(&mut value);
    Some(serde_json::to_vec(&value).expect("it was JSON"))
}

/// Listens in the place of a supervisor.
fn stand_between(socket: &Path, real: &Path, supervisor: Schema, agent: &Held) {
    let listener = UnixListener::bind(socket).expect("the name is free");
    let (real, agent) = (real.to_owned(), agent.clone());
    thread::spawn(move || {
        for down in listener.incoming() {
            let (Ok(down), Ok(up)) = (down, UnixStream::connect(&real)) else { return };
            let (down_again, up_again) = (down.try_clone().expect("a file"), up.try_clone().expect("a file"));
            let (says, hears) = (agent.schema(), agent.schema());
            thread::spawn(move || pass(down, up, &|value| (says.write(value), supervisor.read(value)).0));
            thread::spawn(move || pass(up_again, down_again, &|value| (supervisor.write(value), hears.read(value)).0));
        }
    });
}

/// Frames are their length, the byte 0 for JSON, and the payload.
fn pass(mut from: UnixStream, mut to: UnixStream, change: &dyn Fn(&mut Value)) {
    let mut head = [0; 5];
    while from.read_exact(&mut head).is_ok() {
        let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize];
        if from.read_exact(&mut payload).is_err() {
            break;
        }
        if head[4] == 0 {
            payload = rewritten(&payload, change).expect("messages are JSON");
        }
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        if to.write_all(&[&head, payload.as_slice()].concat()).is_err() {
            break;
        }
    }
    let _gone_already = to.shutdown(std::net::Shutdown::Both);
}
