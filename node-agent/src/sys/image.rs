//! The program image of a process, prepared before it is forked: between fork and exec it allocates nothing.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, c_char};

/// The arguments and the environment of a program.
#[derive(Debug)]
pub struct Image<'a> {
    /// Ends with a null pointer, like the other lists.
    argv: Vec<*const c_char>,
    /// The same arguments for a shell, with the file's name as the second one.
    shell_argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    of: PhantomData<&'a CStr>,
}

impl<'a> Image<'a> {
    pub fn new(argv: &'a [CString], environment: &'a [CString]) -> Image<'a> {
        let list = |words: &'a [CString]| words.iter().map(|word| word.as_ptr());
        let end = || std::iter::once(ptr::null());
        let shell = [SHELL.as_ptr(), ptr::null()].into_iter();
        Image {
            argv: list(argv).chain(end()).collect(),
            shell_argv: shell.chain(list(argv).skip(1)).chain(end()).collect(),
            environment: list(environment).chain(end()).collect(),
            of: PhantomData,
        }
    }

    /// Executes the program in the file; returns only with an error.
    ///
    /// # Errors
    /// See execve(2).
    pub fn execute(&self, file: &CStr) -> Result<Infallible, Errno> {
        // SAFETY: the lists end with null, and their strings live as long as `'a`.
        unsafe { libc::execve(file.as_ptr(), self.argv.as_ptr(), self.environment.as_ptr()) };
        Err(Errno::last())
    }

    /// Executes a shell that reads the file.
    ///
    /// # Errors
    /// See execve(2).
    pub fn execute_by_shell(&mut self, file: &CStr) -> Result<Infallible, Errno> {
        self.shell_argv[1] = file.as_ptr();
        // SAFETY: as above; `file` is borrowed until the call returns, if it does.
        unsafe { libc::execve(SHELL.as_ptr(), self.shell_argv.as_ptr(), self.environment.as_ptr()) };
        self.shell_argv[1] = ptr::null();
        Err(Errno::last())
    }
}

const SHELL: &CStr = c"/bin/sh";
