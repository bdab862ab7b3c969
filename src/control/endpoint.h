// Addresses that our sockets bind and call. Loopback unless told otherwise: there is no authentication yet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// "127.0.0.1" of "tcp://127.0.0.1:7700"; empty for ipc:// and inproc://. Throws kInvalidArgument on anything else.
std::string HostOf(const std::string& endpoint);

// Throws kUnavailable, naming host and endpoint, where the host is a name that nobody knows: ZeroMQ would look it up
// again and again, and say nothing. Takes as long as the system's resolver does (man 5 resolv.conf).
void CheckResolves(const std::string& endpoint);

// An endpoint that a peer has told of itself, as it is reached from here: where the peer listens on all of its
// addresses ("tcp://0.0.0.0:7701"), the one that we reached it at. `reached`: the peer's endpoint that we called.
std::string AsReached(const std::string& endpoint, const std::string& reached);

// "tcp://a:1,tcp://b:2": the publishers of one version, as a command line and the RPC name them. Throws
// kInvalidArgument on an empty one.
std::vector<std::string> SplitEndpoints(const std::string& endpoints);

// What was wrong with an engine, behind its name where that is not said ("engine tcp://a:1: ...").
std::string NamingEngine(const std::string& endpoint, const std::string& fault);

// Of an endpoint that is to be bound, the one that ZeroMQ can: it knows addresses and interfaces ("eth0"), and no names
// of hosts. One that nobody knows is returned as it is.
std::string AsBindable(const std::string& endpoint);

// Of a literal address in brackets: what ZeroMQ wants to be told beforehand.
bool IsIpv6(const std::string& endpoint);

// The end of a message about a peer that does not answer; `heard`: it has answered before.
const char* DoubtOfEndpoint(bool heard);

// Throws kInvalidArgument when the endpoint can be reached from other hosts, unless that is allowed.
void CheckBindable(const std::string& endpoint, bool allow_remote);

}  // namespace layercast
