// Addresses that our sockets bind and call. Loopback unless told otherwise: there is no authentication yet.
#pragma once

#include <netdb.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/base/deadline.h"

namespace layercast {

// "127.0.0.1" of "tcp://127.0.0.1:7700"; empty for ipc:// and inproc://. Throws kInvalidArgument on anything else.
std::string HostOf(const std::string& endpoint);

// Whether ZeroMQ is to use IPv6 for it, which it wants to be told beforehand: of an address in brackets, and of a name
// that has no other. Throws kUnavailable, naming host and endpoint, where the host is a name that nobody knows, or that
// the system's resolver says nothing of before the deadline: ZeroMQ would look it up again and again, without a word.
bool ReachedByIpv6(const std::string& endpoint, Deadline deadline);

// Of a name's addresses, the one that it is reached at: of IPv4, as long as there is one, since a peer that listens on
// "localhost" does so there.
const addrinfo* PreferredAddress(const addrinfo* addresses);

// An endpoint that a peer has told of itself, as it is reached from here: where the peer listens on all of its
// addresses ("tcp://0.0.0.0:7701"), the one that we reached it at. `reached`: the peer's endpoint that we called.
std::string AsReached(const std::string& endpoint, const std::string& reached);

// "tcp://a:1,tcp://b:2": the publishers of one version, as a command line and the RPC name them. Throws
// kInvalidArgument on an empty one.
std::vector<std::string> SplitEndpoints(const std::string& endpoints);

// What was wrong with an engine, behind its name where that is not said ("engine tcp://a:1: ...").
std::string NamingEngine(const std::string& endpoint, const std::string& fault);

// With the host's address instead of its name. One that nobody knows in time is returned as it is.
std::string ByAddress(const std::string& endpoint, Deadline deadline);

// Of an endpoint that is to be bound, the one that ZeroMQ can: it knows addresses and interfaces ("eth0"), and no names
// of hosts. One that nobody knows is returned as it is.
std::string AsBindable(const std::string& endpoint);

// Of an address in brackets.
bool IsIpv6(const std::string& endpoint);

// The end of a message about a peer that does not answer; `heard`: it has answered before.
const char* DoubtOfEndpoint(bool heard);

// Throws kInvalidArgument when the endpoint can be reached from other hosts, unless that is allowed.
void CheckBindable(const std::string& endpoint, bool allow_remote);

}  // namespace layercast
