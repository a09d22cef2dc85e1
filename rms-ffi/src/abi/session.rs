//! Sessions: connecting, closing, and the application's nodes.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::ptr;

use super::arguments;
use super::pointer;
use crate::failure::Failure;
use crate::guard::guard;
use crate::layout::{Node, Options, RMS_NAME_SIZE, RMS_NOTHING, RMS_OK, Session, Stage};
use crate::sessions;

/// Connects to the RMS for the job of this process, which its environment names. From now on this session negotiates
/// for the job; an older session, of any process, gets RMS_EVENT_REPLACED. Options may be NULL. Call it in one process
/// of the job, for example rank 0. That process may still fork afterwards, but its children may only call exec or
/// _exit.
#[unsafe(no_mangle)]
pub extern "C" fn rms_connect(options: *const Options, session: *mut *mut Session) -> c_int {
    guard(|| {
        pointer::put(session, ptr::null_mut(), "session")?;
        let (patience, survives_loss) = arguments::options(options)?;
        let token = sessions::connect(patience, survives_loss)?;
        pointer::put(session, ptr::without_provenance_mut(token), "session")?;
        Ok(RMS_OK)
    })
}

/// Closes a session; the job keeps running with the nodes that it holds. Calls of other threads in this session return
/// RMS_ESESSION, and so does every later call. Must not be called from its own callback.
#[unsafe(no_mangle)]
pub extern "C" fn rms_close(session: *mut Session) -> c_int {
    guard(|| {
        sessions::close(session.addr())?;
        Ok(RMS_OK)
    })
}

/// Gets the number of changes of the application's nodes, from 1; the file $RMS_GENERATION_FILE contains the same
/// number.
#[unsafe(no_mangle)]
pub extern "C" fn rms_generation(session: *mut Session, generation: *mut u32) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        pointer::put(generation, session.holding().generation, "generation")?;
        Ok(RMS_OK)
    })
}

/// Gets the time when the application is ended, in milliseconds since 1970 by the RMS's clock.
#[unsafe(no_mangle)]
pub extern "C" fn rms_until(session: *mut Session, until_ms: *mut i64) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        pointer::put(until_ms, session.holding().until.as_millis(), "until_ms")?;
        Ok(RMS_OK)
    })
}

/// Gets the current and the next stage of a job with a profile. RMS_NOTHING: the job has no profile.
#[unsafe(no_mangle)]
pub extern "C" fn rms_next_stage(session: *mut Session, stage: *mut Stage) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        let size = pointer::size_at(stage, "stage")?;
        let holding = session.holding();
        let Some(stages) = &holding.stages else { return Ok(RMS_NOTHING) };
        let next = stages.legs.get(1);
        let told = Stage {
            size,
            number: stages.number,
            n_stages: stages.n_stages,
            nodes: stages.legs.first().map_or(0, |leg| leg.nodes),
            next_nodes: next.map_or(0, |leg| leg.nodes),
            until_ms: next.and_then(|leg| leg.start).unwrap_or(holding.until).as_millis(),
        };
        pointer::write(stage, told, "stage")?;
        Ok(RMS_OK)
    })
}

/// Gets the nodes of the application, node 0 first. Fills up to capacity elements; the first must have its size set,
/// which is copied to all. Nodes that are agreed but not ready yet are included, with is_coming set. n_nodes is set to
/// the number of nodes. If more than capacity, returns RMS_ESPACE and fills nothing; with NULL and 0, only gets the
/// number, and returns RMS_OK.
#[unsafe(no_mangle)]
pub extern "C" fn rms_nodes(session: *mut Session, nodes: *mut Node, capacity: usize, n_nodes: *mut usize) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        let held = session.holding().nodes;
        pointer::put(n_nodes, held.len(), "n_nodes")?;
        if nodes.is_null() && capacity == 0 {
            return Ok(RMS_OK);
        }
        if held.len() > capacity {
            return Err(Failure::NoRoom { what: "nodes", room: capacity, needed: held.len() });
        }
        let stride = pointer::size_at(nodes, "nodes")?;
        for (idx, node) in held.iter().enumerate() {
            let node = Node {
                size: stride,
                node: node.node.0,
                cpus: node.cpus,
                is_departing: node.is_departing.into(),
                is_coming: node.is_coming.into(),
                name: name(&node.name),
                address: name(&node.address),
                cluster: name(&node.cluster_name),
            };
            pointer::write_element(nodes, stride, idx, node)?;
        }
        Ok(RMS_OK)
    })
}

/// Writes the nodes that the application can use to a hostfile for mpirun: one line each, "name slots=cpus". Nodes that
/// it is leaving, and nodes that are not ready yet, are left out. If the path is NULL, it is $RMS_HOSTFILE. The file is
/// replaced by renaming, so readers never see a part of it; what is there and no regular file is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn rms_write_hostfile(session: *mut Session, path: *const c_char) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        let path = pointer::optional_text(path, "path")?.map(PathBuf::from);
        if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(Failure::Invalid("the path is empty: name a file, or pass NULL for $RMS_HOSTFILE".to_owned()));
        }
        session.write_hostfile(path)?;
        Ok(RMS_OK)
    })
}

/// Returns a name, NUL-terminated; the RMS has none that are longer.
fn name(text: &str) -> [c_char; RMS_NAME_SIZE] {
    let mut name = [0; RMS_NAME_SIZE];
    let n_bytes = text.floor_char_boundary(RMS_NAME_SIZE - 1);
    for (to, from) in name.iter_mut().zip(&text.as_bytes()[..n_bytes]) {
        *to = c_char::from_ne_bytes([*from]);
    }
    name
}
