// The endpoints that servers bind and clients call, as texts. Without keys, which authenticate peers, servers bind
// loopback addresses only, unless they are told otherwise. Used by the RPC, sessions, engines and the command line.
#pragma once

#include <netdb.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/deadline.h"

namespace layercast {

// The host of an endpoint: "127.0.0.1" for "tcp://127.0.0.1:7700", empty for ipc:// and inproc://. Throws
// kInvalidArgument on an endpoint of any other form.
std::string HostOf(const std::string& endpoint);

// Whether the endpoint is reached by IPv6, which a ZeroMQ socket must be told before it connects: its host is an
// address in brackets, or a name that has only IPv6 addresses. Throws kUnavailable, naming host and endpoint, if the
// name is unknown or the system's resolver does not answer before the deadline: ZeroMQ itself would silently look it up
// for ever.
bool ReachedByIpv6(const std::string& endpoint, Deadline deadline);

// The address at which a host is reached, out of all that its name has: the first IPv4 address if there is one, because
// a peer that listens on "localhost" listens there; else the first of the list.
const addrinfo* PreferredAddress(const addrinfo* addresses);

// The endpoint that a peer has announced as its own, in the form in which it can be called from here: if the peer
// listens on all of its addresses ("tcp://0.0.0.0:7701"), the host is replaced by that of `reached`, which is the
// endpoint at which this process has called the peer.
std::string AsReached(const std::string& endpoint, const std::string& reached);

// Splits a list such as "tcp://a:1,tcp://b:2", which is how the command line and the RPC name the publishers of one
// version. Throws kInvalidArgument if an item is empty.
std::vector<std::string> SplitEndpoints(const std::string& endpoints);

// How long a host's name is looked up, at most, where more time is left.
inline constexpr std::chrono::milliseconds kToLookUp{5'000};

// The endpoint with its host's name replaced by the host's address. If the name cannot be resolved before the deadline,
// the endpoint is returned as it is.
std::string ByAddress(const std::string& endpoint, Deadline deadline);

// The endpoint in a form that ZeroMQ can bind: ZeroMQ binds to addresses and interfaces ("eth0"), but not to host
// names, so a name is replaced by its address. If it cannot be resolved, the endpoint is returned as it is.
std::string AsBindable(const std::string& endpoint);

// Whether the endpoint's host is an IPv6 address (in brackets).
bool IsIpv6(const std::string& endpoint);

// The end of an error message about a peer that does not answer. `heard`: whether the peer has ever answered; if so,
// there is nothing to add.
const char* DoubtOfEndpoint(bool heard);

// Throws kInvalidArgument if the endpoint can be reached from other hosts and `may_leave_the_host` is false.
void CheckBindable(const std::string& endpoint, bool may_leave_the_host);

}  // namespace layercast
