// AF_UNIX sockets with abstract names, which connect processes of one user on one host. Used by shm and cuda_ipc.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/net/host_identity.h"

namespace layercast {

// Why two processes cannot connect by such a socket; empty if they can.
std::string WhyNotLocal(const HostIdentity& mine, const HostIdentity& theirs);

// Makes a listening socket under a fresh name, and sets `name` to it. `type` is SOCK_STREAM or SOCK_SEQPACKET. Throws
// kResourceExhausted.
UniqueFd ListenLocally(int type, std::string& name);
// Accepts a connection without waiting. Returns an empty descriptor if there is none, or if the peer belongs to another
// user.
UniqueFd AcceptLocally(const UniqueFd& listener);
// Throws kUnavailable if nobody listens there or the listener belongs to another user, and kDeadlineExceeded.
UniqueFd ConnectLocally(int type, const std::string& name, Deadline deadline);
// Whether the other end of a connection belongs to the user of this process.
bool IsOurUser(int socket);
// Whether the other end of a connection belongs to this very process.
bool IsWithinThisProcess(int socket);
// The process at the other end, as this process's PID namespace numbers it; 0 if it has no number there.
pid_t ProcessOf(int socket);

}  // namespace layercast
