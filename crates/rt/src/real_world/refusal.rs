//! For tests: a kernel that refuses system calls, by a filter of them (seccomp).

use std::io;

/// What the kernel is to refuse.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// To make threads and processes.
    Threads,
    /// To hand requests to a ring of asynchronous ones, and to wait for their answers.
    UseOfRings,
}

/// For tests: from now on the kernel refuses `calls` with the error `code`, in all threads of the
/// process. That cannot be taken back: do it in a fork ([`in_fork`](crate::in_fork)).
///
/// # Errors
///
/// If the kernel has no filters.
#[doc(hidden)]
pub fn refuse_calls(calls: Calls, code: i32) -> io::Result<()> {
    const NUMBER_AT: u32 = 0;
    let numbers: &[libc::c_long] = match calls {
        Calls::Threads => &[libc::SYS_clone, libc::SYS_clone3],
        Calls::UseOfRings => &[libc::SYS_io_uring_enter],
    };
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let answer = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER_AT)];
    for &number in numbers {
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32));
        steps.push(answer(libc::SECCOMP_RET_ERRNO | code as u32));
    }
    steps.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (filter, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: a plain system call; the program and its steps live until the second one returns.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, filter, all, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
