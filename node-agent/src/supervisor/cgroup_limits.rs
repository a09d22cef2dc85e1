//! Limits a job to the CPUs, memory and devices that it was given, as far as the kernel enforces them.

use std::collections::BTreeSet;
use std::io;

use rms_model::Mebibytes;

use super::job::Job;
use super::start::StartFailure;
use crate::cgroup::{Cgroup, DeviceNumber};
use crate::order::Order;
use crate::topology::cpulist::{self, CpuSet};

/// The limits set in the cgroup of a supervisor. They stay for the next job until they are changed.
#[derive(Debug, Default)]
pub struct CgroupLimits {
    /// Whether the memory of the job is limited.
    is_limited: bool,
    /// The CPUs that are set. Unknown before the first job, and after the CPUs of a job have changed.
    cpus: Option<CpuSet>,
    /// Device files that are closed.
    closed: BTreeSet<DeviceNumber>,
}

impl CgroupLimits {
    /// Sets the limits before any process of the job is started.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn apply(&mut self, job: &Job, cgroup: &Cgroup) -> Result<(), StartFailure> {
        let fault = |reason| StartFailure { reason, is_fault: true };
        if self.cpus.as_ref() != Some(job.cpus.held()) {
            let cpus = cpulist::print(job.cpus.held());
            let set = cgroup.set_cpus(job.cpus.held());
            set.map_err(|error| fault(format!("cannot set the CPUs of its cgroup to {cpus}: {error}")))?;
            self.cpus = Some(job.cpus.held().clone());
        }
        let closed = self.close_devices(&job.order, cgroup);
        closed.map_err(|error| fault(format!("cannot close the devices of others to it: {error}")))?;
        self.limit_memory(&job.order, cgroup)
    }

    /// Updates the limits of a running job. Returns whether the kernel enforces them.
    pub fn update(&mut self, job: &Job, cgroup: &Cgroup) -> bool {
        self.cpus = None;
        let closed = self.close_devices(&job.order, cgroup);
        if let Err(error) = &closed {
            eprintln!("job {}: cannot close the devices of others to it: {error}", job.order.job);
        }
        let limited = self.limit_memory(&job.order, cgroup);
        if let Err(unlimited) = &limited {
            eprintln!("job {}: {}", job.order.job, unlimited.reason);
        }
        closed.is_ok() && limited.is_ok()
    }

    pub fn limits_memory(&self) -> bool {
        self.is_limited
    }

    /// Opens devices that were closed to the previous job, and closes those that this one does not have.
    fn close_devices(&mut self, order: &Order, cgroup: &Cgroup) -> io::Result<()> {
        let wanted = order.devices.as_ref().map(|devices| devices.closed.clone()).unwrap_or_default();
        if wanted != self.closed {
            cgroup.set_devices(&self.closed, &wanted)?;
            self.closed = wanted;
        }
        Ok(())
    }

    /// Sets the memory limit. Writes nothing for a job without a limit, unless the previous job had one.
    fn limit_memory(&mut self, order: &Order, cgroup: &Cgroup) -> Result<(), StartFailure> {
        let is_limited = order.memory() > Mebibytes(0);
        let was_limited = std::mem::replace(&mut self.is_limited, is_limited && cgroup.limits_memory());
        if !self.is_limited && !was_limited {
            return Ok(());
        }
        cgroup.limit_memory(order.memory()).map_err(|error| {
            let reason = format!("cannot limit its memory to {}: {error}", order.memory());
            // The supervisor's own memory counts, too: a large script or environment may exceed the limit.
            StartFailure { reason, is_fault: error.kind() != io::ErrorKind::ResourceBusy }
        })
    }
}
