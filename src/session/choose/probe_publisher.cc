#include "src/session/choose/probe_publisher.h"

#include <chrono>

#include "src/session/link/my_host.h"
#include "src/session/link/naming_peer.h"
#include "src/session/link/publisher_link.h"

namespace layercast {

PublisherProbe ProbePublisher(const std::string& endpoint, const Keys& keys, Deadline deadline) {
  const PeerName peer{"publisher", endpoint};
  return NamingPeer(peer, [&] {
    PublisherLink link(peer, keys, std::chrono::milliseconds(5000));
    wire::Hello hello;
    hello.engine = "layercast probe";
    hello.host = MyHost();
    const wire::Welcome welcome = link.Greet(hello, deadline);
    const ExpectAlive expect_alive = [&](Deadline until) { link.ExpectAlive(until, "measuring its data channels"); };
    ChannelChooser chooser(AllTransports(std::nullopt, keys));
    PublisherProbe probe{welcome.publisher, welcome.host.boot_id == hello.host.boot_id,
                         chooser.TryAll(welcome, expect_alive, deadline)};
    link.Send(wire::Bye{});
    return probe;
  });
}

}  // namespace layercast
