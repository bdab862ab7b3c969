// Resolves names of hosts within a deadline. The system's resolver lets callers set none, and takes half a minute if
// the name server is dead. Used before endpoints are bound or connected to.
#pragma once

#include <netdb.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/deadline.h"

namespace layercast {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The result of getaddrinfo. Value; move-only.
struct HostLookup {
  AddressList addresses{nullptr, nullptr};  // null: none were found
  int status = 0;                           // if none were found, the reason, for gai_strerror
};

// Looks up a host (a name, or an address, also in brackets) and a service, as getaddrinfo takes them. Returns nullopt
// if the deadline passes first. Looking up an address never waits.
std::optional<HostLookup> LookUpHost(const std::string& host, const std::string& service, const addrinfo& hints,
                                     Deadline deadline);

// Calls `resolve` on a thread of its own, and returns what it does, or nullopt if the deadline passes first. The thread
// then runs on by itself, so `resolve` must own what it works on.
std::optional<HostLookup> LookUpWithin(std::function<HostLookup()> resolve, Deadline deadline);

}  // namespace layercast
