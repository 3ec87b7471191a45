//! Names and numbers of the system calls that filters speak of.

macro_rules! table {
    ($($(#[$condition:meta])* $name:literal => $number:expr;)*) => {
        /// Gives the number of a call on this architecture.
        pub(crate) fn number(name: &str) -> Option<u32> {
            let number = match name {
                $($(#[$condition])* $name => $number,)*
                _ => return None,
            };
            u32::try_from(number).ok()
        }
    };
}

table! {
    "io_uring_setup" => libc::SYS_io_uring_setup;
    "io_uring_enter" => libc::SYS_io_uring_enter;
    "io_uring_register" => libc::SYS_io_uring_register;
    "open_by_handle_at" => libc::SYS_open_by_handle_at;
    "pidfd_getfd" => libc::SYS_pidfd_getfd;
    "keyctl" => libc::SYS_keyctl;
    "add_key" => libc::SYS_add_key;
    "request_key" => libc::SYS_request_key;
    "bpf" => libc::SYS_bpf;
    "perf_event_open" => libc::SYS_perf_event_open;
    "userfaultfd" => libc::SYS_userfaultfd;
    "fanotify_init" => libc::SYS_fanotify_init;
    "fanotify_mark" => libc::SYS_fanotify_mark;
    "init_module" => libc::SYS_init_module;
    "finit_module" => libc::SYS_finit_module;
    "delete_module" => libc::SYS_delete_module;
    "kexec_load" => libc::SYS_kexec_load;
    "kexec_file_load" => libc::SYS_kexec_file_load;
    "reboot" => libc::SYS_reboot;
    "swapon" => libc::SYS_swapon;
    "swapoff" => libc::SYS_swapoff;
    #[cfg(target_arch = "x86_64")]
    "iopl" => libc::SYS_iopl;
    #[cfg(target_arch = "x86_64")]
    "ioperm" => libc::SYS_ioperm;
    #[cfg(target_arch = "x86_64")]
    "modify_ldt" => libc::SYS_modify_ldt;
    "syslog" => libc::SYS_syslog;
    "quotactl" => libc::SYS_quotactl;
    "quotactl_fd" => 443;
    "acct" => libc::SYS_acct;
    "settimeofday" => libc::SYS_settimeofday;
    "clock_settime" => libc::SYS_clock_settime;
    "sethostname" => libc::SYS_sethostname;
    "setdomainname" => libc::SYS_setdomainname;
    "vhangup" => libc::SYS_vhangup;
    "lookup_dcookie" => libc::SYS_lookup_dcookie;
    "nfsservctl" => libc::SYS_nfsservctl;
    "mount" => libc::SYS_mount;
    "umount2" => libc::SYS_umount2;
    "pivot_root" => libc::SYS_pivot_root;
    "chroot" => libc::SYS_chroot;
    "fsopen" => libc::SYS_fsopen;
    "fsconfig" => libc::SYS_fsconfig;
    "fsmount" => libc::SYS_fsmount;
    "fspick" => libc::SYS_fspick;
    "move_mount" => libc::SYS_move_mount;
    "open_tree" => libc::SYS_open_tree;
    "open_tree_attr" => 467;
    "mount_setattr" => libc::SYS_mount_setattr;
    "setns" => libc::SYS_setns;
    "unshare" => libc::SYS_unshare;
    "clone" => libc::SYS_clone;
    "clone3" => libc::SYS_clone3;
    "ptrace" => libc::SYS_ptrace;
    "process_vm_readv" => libc::SYS_process_vm_readv;
    "process_vm_writev" => libc::SYS_process_vm_writev;
    "kcmp" => libc::SYS_kcmp;
    "prlimit64" => libc::SYS_prlimit64;
    "ioctl" => libc::SYS_ioctl;
    "socket" => libc::SYS_socket;
    "socketpair" => libc::SYS_socketpair;
    "connect" => libc::SYS_connect;
    "bind" => libc::SYS_bind;
    "sendto" => libc::SYS_sendto;
}
