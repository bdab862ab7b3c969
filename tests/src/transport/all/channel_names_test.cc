#include "src/transport/all/channel_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"

namespace layercast {
namespace {

TEST(ChannelNames, OfThisBuildAreThoseOfItsTransportsInTheirOrder) {
  std::vector<std::string_view> built, named;
  const auto transports = AllTransports();
  for (const auto& transport : transports) built.push_back(transport->name());
  for (const ChannelName& channel : ChannelNames()) {
    if (channel.lacking.empty()) named.push_back(channel.name);
  }
  EXPECT_EQ(named, built);
}

TEST(ChannelNames, SayWhichOfThemStayInOneProcess) {
  const HostIdentity mine = HostIdentity::Mine();
  HostIdentity another = mine;
  another.process = "1@another";
  for (const auto& transport : AllTransports()) {
    if (!transport->WhyNotBetween(mine, mine).empty()) continue;  // it has no device here
    const auto named = std::ranges::find(ChannelNames(), transport->name(), &ChannelName::name);
    EXPECT_EQ(named->leaves_the_process, transport->WhyNotBetween(mine, another).empty()) << transport->name();
  }
}

}  // namespace
}  // namespace layercast
