// AF_UNIX sockets with abstract names, between processes of one user on one host: what the channels over one begin
// with.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/transport/channel.h"

namespace layercast {

// Why two processes cannot meet by one; empty: they can.
std::string WhyNotLocal(const HostIdentity& mine, const HostIdentity& theirs);

// `type`: SOCK_STREAM or SOCK_SEQPACKET. A listening socket under a fresh name, which is returned. Throws
// kResourceExhausted.
UniqueFd ListenLocally(int type, std::string& name);
// Accepts without waiting; nothing when nobody waits or when the peer is another user's.
UniqueFd AcceptLocally(const UniqueFd& listener);
// Throws kUnavailable: nobody there, or another user's.
UniqueFd ConnectLocally(int type, const std::string& name, Deadline deadline);
// Whether the other end of a connection is this user's, and this very process.
bool IsOurUser(int socket);
bool IsWithinThisProcess(int socket);
// The process at the other end, as this process's PID namespace numbers it; 0: it has no number there.
pid_t ProcessOf(int socket);

}  // namespace layercast
