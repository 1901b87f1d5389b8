//! pmdscope: tcpdump, netstat and top for NICs that the kernel can no longer see.

fn main() {}
