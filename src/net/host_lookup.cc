#include "src/net/host_lookup.h"

#include <chrono>
#include <thread>
#include <utility>

#include "src/base/threads/bounded_queue.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kNow{0};

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

HostLookup Resolve(const std::string& name, const std::string& service, const addrinfo& hints) {
  HostLookup lookup;
  addrinfo* found = nullptr;
  lookup.status = ::getaddrinfo(name.c_str(), service.c_str(), &hints, &found);
  if (lookup.status == 0) lookup.addresses = {found, &::freeaddrinfo};
  return lookup;
}

}  // namespace

std::optional<HostLookup> LookUpHost(const std::string& host, const std::string& service, const addrinfo& hints,
                                     Deadline deadline) {
  const std::string name = WithoutBrackets(host);
  addrinfo numeric = hints;
  numeric.ai_flags |= AI_NUMERICHOST;
  HostLookup address = Resolve(name, service, numeric);
  if (address.addresses != nullptr) return address;
  return LookUpWithin([name, service, hints] { return Resolve(name, service, hints); }, deadline);
}

std::optional<HostLookup> LookUpWithin(std::function<HostLookup()> resolve, Deadline deadline) {
  const auto answer = std::make_shared<BoundedQueue<HostLookup>>(1);  // the other owner: the thread
  std::thread([answer, resolve = std::move(resolve)] {
    NameThisThread("lc-resolve");
    answer->Push(resolve(), Deadline::After(kNow));
  }).detach();
  return answer->Pop(deadline);
}

}  // namespace layercast
