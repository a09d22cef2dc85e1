//! The supervisor's part in commands that run in addition to the tasks of a job: their start, their streams, their end.

use super::Supervisor;
use super::environment;
use super::exec::Exec;
use super::job::Phase;
use super::step;
use crate::order::{ExecOrder, FromSupervisor, TASK_INPUT};
use crate::sys::End;
use rms_model::Inherited;

impl Supervisor {
    pub(super) fn exec(&mut self, order: ExecOrder) {
        let ExecOrder { stream, command, inherited, is_of_other_node } = order;
        let Some(job) = &mut self.job else { return };
        let exec = match (&job.account, &job.phase) {
            (Some(account), Phase::Running) => {
                let variables = environment::of_command(&job.variables, &job.order, account);
                let order = inherited.map(|Inherited { umask, limits }| job.order.of_caller(umask, limits));
                Exec::start(order.as_ref().unwrap_or(&job.order), account, &variables, stream, command, &self.single)
                    .map_err(|error| error.to_string())
            }
            (Some(_) | None, Phase::Running | Phase::Ending(_) | Phase::Ended { .. }) => {
                Err("the job is ending".to_owned())
            }
        };
        match exec {
            Ok(mut exec) => {
                exec.is_of_other_node = is_of_other_node;
                job.execs.push(exec);
                self.send(&FromSupervisor::ExecStarted { stream });
            }
            Err(reason) => self.send(&FromSupervisor::ExecFailed { stream, reason }),
        }
    }

    pub(super) fn input(&mut self, stream: u64, bytes: &[u8]) {
        if step::block(stream).is_some() {
            return self.step_input(stream, bytes);
        }
        let Some(job) = &mut self.job else { return };
        let n_taken = if stream == TASK_INPUT {
            job.input.feed(bytes)
        } else {
            let exec = job.execs.iter_mut().find(|exec| exec.stream == stream);
            exec.map_or(bytes.len() as u64, |exec| exec.input.feed(bytes))
        };
        self.confirm(stream, n_taken);
    }

    pub(super) fn confirm(&mut self, stream: u64, n_bytes: u64) {
        if n_bytes > 0 {
            self.send(&FromSupervisor::Taken { stream, n_bytes, total: None });
        }
    }

    /// Forwards the last output of commands that have ended, then how they ended.
    pub(super) fn finish_execs(&mut self) {
        loop {
            let Some(job) = &mut self.job else { return };
            let Some(idx) = job.execs.iter().position(|exec| exec.end.is_some()) else { return };
            let mut exec = job.execs.swap_remove(idx);
            for (stream, bytes) in exec.drain() {
                self.send_bytes(stream, &bytes);
            }
            let stream = exec.stream;
            let ended = match exec.exec_status.take_error() {
                Some(reason) => FromSupervisor::ExecFailed { stream, reason },
                None => FromSupervisor::ExecEnded { stream, code: exec.end.map_or(255, End::shell_code) },
            };
            self.send(&ended);
        }
    }
}
