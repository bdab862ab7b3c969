// Names of hosts to addresses, within a deadline: the system's resolver has none of its own that a caller could set,
// and a dead name server costs it half a minute.
#pragma once

#include <netdb.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/deadline.h"

namespace layercast {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// What getaddrinfo came to. Value; move-only.
struct HostLookup {
  AddressList addresses{nullptr, nullptr};  // null: none
  int status = 0;                           // for gai_strerror, where there are none
};

// Of a host (a name, or an address, also in brackets) and a service, both as getaddrinfo takes them. Nothing where the
// deadline passes first. An address never waits.
std::optional<HostLookup> LookUpHost(const std::string& host, const std::string& service, const addrinfo& hints,
                                     Deadline deadline);

// The same by any resolver, which is called on a thread of its own, and left to itself where it takes too long: it owns
// what it works on.
std::optional<HostLookup> LookUpWithin(std::function<HostLookup()> resolve, Deadline deadline);

}  // namespace layercast
