//! The UDP socket under an endpoint.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use rustix::net::sockopt;

/// Binds a socket with buffers large enough for bursts from many peers, as far as the system allows.
pub fn bind(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    // A privileged process may exceed net.core.{r,w}mem_max; for others the kernel reduces the size.
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    let received = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES));
    let sent = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
    if let Err(error) = received.and(sent) {
        tracing::debug!(%error, "the socket keeps its default buffers");
    }
    let granted = sockopt::socket_recv_buffer_size(&socket)?;
    if granted < BUFFER_BYTES {
        tracing::debug!(granted, wanted = BUFFER_BYTES, "a larger net.core.rmem_max would take bursts better");
    }
    Ok(socket)
}

const BUFFER_BYTES: usize = 4 << 20;
