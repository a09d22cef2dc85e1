//! Dispatches the calls of clients to their handlers, and records them in the audit.

use rms_api::answer::Answer;
use rms_api::call::Call;
use rms_model::token::Redeemed;
use rms_model::{Identity, NodeAdmin, Time};

use crate::access::Joiner;
use crate::audit;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::rights::may_touch;
use crate::rms::Rms;
use crate::step::Step;

impl Rms {
    pub(crate) fn handle_call(&mut self, now: Time, step: &mut Step, ticket: Ticket, who: &Identity, call: Call) {
        let act = audit::act_of(self.state(), who, &call);
        let answer = match call {
            Call::Submit(submission) => self.queue().submit(now, step, who, *submission),
            Call::Cancel { select } => {
                self.queue().for_each(who, &select, |queue, job| queue.jobs.cancel(now, step, who, job))
            }
            Call::Signal { select, signal } => {
                self.queue().for_each(who, &select, |queue, job| queue.signal(step, job, signal))
            }
            Call::Hold { select } => self.queue().for_each(who, &select, |queue, job| queue.hold(now, step, who, job)),
            Call::Release { select } => {
                self.queue().for_each(who, &select, |queue, job| queue.release(now, step, who, job))
            }
            Call::Update { select, changes } => {
                self.queue().for_each(who, &select, |queue, job| queue.update(now, step, who, job, &changes))
            }
            Call::Query(query) => self.answers().query(now, who, query),
            Call::Set { key, value } => self.admin().set(now, step, who, &key, &value),
            Call::Drain { nodes, reason } => {
                let admin = NodeAdmin::Drain { reason, by: who.name.clone(), since: now };
                self.admin().set_admin(now, step, who, &nodes, admin)
            }
            Call::Down { nodes, reason } => {
                let admin = NodeAdmin::Down { reason, by: who.name.clone(), since: now };
                self.admin().set_admin(now, step, who, &nodes, admin)
            }
            Call::Resume { nodes } => self.admin().resume(now, step, who, &nodes),
            Call::Remove { nodes } => self.admin().remove_nodes(now, step, who, &nodes),
            Call::RemoveCluster { name } => self.admin().remove_cluster(step, who, &name),
            Call::CreateToken(order) => self.access().create_token(now, step, who, order),
            Call::SetLink { a, b, latency_us, bandwidth_mbit } => {
                self.admin().set_link(now, step, who, [&a, &b], latency_us, bandwidth_mbit)
            }
            Call::RevokeToken { id } => self.access().revoke_token(now, step, who, &id),
            Call::RevokeCertificate { which, jobs } => self.access().revoke_certificate(now, step, who, &which, jobs),
            Call::Evolve { job, stages, open } => self.context.evolve(now, step, who, job, stages, open),
            Call::SetMask { job, order } => self.answers().mask_to_set(now, who, job, &order),
            Call::FreeNodes { job, nodes } => self.context.free_nodes(step, who, job, &nodes),
            Call::ResizeDone { job, generation } => self.negotiations().resize_done(now, step, who, job, generation),
            Call::OrderNegotiation { job, negotiation, order } => {
                self.negotiations().order_negotiation(now, step, who, job, negotiation, order)
            }
            // Answered once the negotiation has an outcome.
            Call::Negotiate { job, ask } => match may_touch(self.state(), who, job) {
                Ok(()) => {
                    let is_asked = self.negotiations().ask(now, step, ticket, job, who.name.clone(), &ask);
                    if let Some(act) = act.filter(|_| is_asked) {
                        self.context.audit_call(now, step, who, act, &Answer::Done);
                    }
                    return;
                }
                Err(refusal) => Err(refusal),
            },
            // These two are answered with a certificate, unless they are refused.
            Call::Join { token_id, digest, name, machine, is_agent, csr, key, serial, replaces } => {
                let redeemed = Redeemed { key, serial };
                let who = Joiner { is_agent, name: name.as_deref(), machine: machine.as_deref() };
                match self.access().join(now, step, (&token_id, &digest), who, (redeemed, replaces.as_deref())) {
                    Ok((issued, cluster)) => {
                        step.order(Effect::Sign { ticket, issued, csr, cluster });
                        return;
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Call::Renew { csr, serial, renews } => match self.access().renew(now, step, who, (serial, renews)) {
                Ok(issued) => {
                    step.order(Effect::Sign { ticket, issued, csr, cluster: None });
                    return;
                }
                Err(refusal) => Err(refusal),
            },
        };
        if let (Some(act), Ok(answer)) = (act, &answer) {
            self.context.audit_call(now, step, who, act, answer);
        }
        step.order(Effect::Answer { ticket, answer });
    }
}
