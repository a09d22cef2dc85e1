//! Frames of the wire: what is accepted parses or is refused, and its bytes stand for it again.

use negotiation::Message as Said;
use rms_api::answer::JobChange;
use rms_api::desired::AgentHello;
use rms_api::negotiate::{Ask, NegotiatorCall};
use rms_api::subscription::{Grant, LauncherCall};
use rms_wire::codec::{HEADER_BYTES, Header, decode_frame, encode};
use rms_wire::convert::{DesiredParts, ReportParts, ViewParts, parse_launcher_answer, parse_negotiator_answer};
use rms_wire::reply::ReplyParts;
use rms_wire::{
    ClientAnswer, ClientCall, ClientRequest, FollowOrder, Followed, Hello, HelloAnswer, Input, JoinAnswer, JoinRequest,
    Kind, LauncherSays, LauncherTold, Message, NegotiatorSays, NegotiatorTold, PeerExec, PeerOpen, PmiDown, PmiUp,
    Spooled, StepDown, StepUp, ToAgent, ToServer,
};

/// The frame in these bytes, with a header that is right but for its kind.
fn framed(input: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let (header, payload) = input.split_first_chunk::<HEADER_BYTES>()?;
    let kind = Kind::from_number(Header::from_bytes(*header).kind)?;
    let header = Header { kind: kind.number(), version: 1, length: payload.len() as u32 };
    let mut frame = header.to_bytes().to_vec();
    frame.extend_from_slice(payload);
    Some((kind, frame))
}

/// Decodes, parses by `parse`, and compares with what its own bytes say.
fn again<M: Message + Clone>(frame: &[u8], parse: impl FnOnce(M)) {
    let Ok(message) = decode_frame::<M>(frame) else { return };
    parse(message.clone());
    let bytes = encode(&message).expect("what was decoded within the limit is encoded within it");
    let twice = decode_frame::<M>(&bytes).expect("what was accepted can be sent");
    assert_eq!(encode(&twice).expect("as before"), bytes);
}

fn plain<M: Message + Clone>(frame: &[u8]) {
    again::<M>(frame, drop);
}

pub fn of_entry(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::Hello => plain::<Hello>(&frame),
        Kind::HelloAnswer => plain::<HelloAnswer>(&frame),
        Kind::JoinRequest => plain::<JoinRequest>(&frame),
        Kind::JoinAnswer => plain::<JoinAnswer>(&frame),
        _other_targets => {}
    }
}

pub fn of_agents(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::ToServer => again::<ToServer>(&frame, |message| match message {
            ToServer::Hello(hello) => drop(AgentHello::try_from(hello)),
            ToServer::Report(part) => drop(ReportParts::new().push(part)),
            ToServer::Ask { ask, .. } => drop(Ask::try_from(ask)),
            ToServer::Renew { .. } | ToServer::Certify { .. } | ToServer::Trouble { .. } => {}
        }),
        Kind::ToAgent => again::<ToAgent>(&frame, |message| {
            if let ToAgent::Desire(part) = message {
                drop(DesiredParts::new().push(part));
            }
        }),
        Kind::FollowOrder => plain::<FollowOrder>(&frame),
        Kind::Spooled => plain::<Spooled>(&frame),
        _other_targets => {}
    }
}

pub fn of_clients(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::ClientCall => {
            again::<ClientCall>(&frame, |message| drop(ClientRequest::parse(message, || "5e".to_owned())));
        }
        Kind::ClientAnswer => again::<ClientAnswer>(&frame, |message| drop(ReplyParts::new().push(message))),
        Kind::Followed => again::<Followed>(&frame, |message| {
            if let Followed::Change(change) = message {
                drop(JobChange::try_from(change));
            }
        }),
        Kind::Input => plain::<Input>(&frame),
        _other_targets => {}
    }
}

pub fn of_launchers(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::LauncherSays => again::<LauncherSays>(&frame, |message| drop(LauncherCall::try_from(message.call))),
        Kind::LauncherTold => again::<LauncherTold>(&frame, |message| match message {
            LauncherTold::Answer { seq: _, answer } => drop(parse_launcher_answer(answer)),
            LauncherTold::Changed(part) => drop(ViewParts::new().push(part)),
            LauncherTold::Started(grant) => drop(Grant::try_from(*grant)),
            LauncherTold::Ended { .. } | LauncherTold::Replaced => {}
        }),
        _other_targets => {}
    }
}

pub fn of_negotiators(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::NegotiatorSays => again::<NegotiatorSays>(&frame, |message| drop(NegotiatorCall::try_from(message.call))),
        Kind::NegotiatorTold => again::<NegotiatorTold>(&frame, |message| match message {
            NegotiatorTold::Answer { seq: _, answer } => drop(parse_negotiator_answer(answer)),
            NegotiatorTold::Said(message) => drop(Said::try_from(*message)),
            _plain => {}
        }),
        _other_targets => {}
    }
}

pub fn of_peers(input: &[u8]) {
    let Some((kind, frame)) = framed(input) else { return };
    match kind {
        Kind::PeerOpen => plain::<PeerOpen>(&frame),
        Kind::PmiUp => plain::<PmiUp>(&frame),
        Kind::PmiDown => plain::<PmiDown>(&frame),
        Kind::PeerExec => plain::<PeerExec>(&frame),
        Kind::StepDown => plain::<StepDown>(&frame),
        Kind::StepUp => plain::<StepUp>(&frame),
        _other_targets => {}
    }
}
