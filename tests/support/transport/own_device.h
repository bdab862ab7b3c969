// Of channels between devices, whose device a FakeChannelDevice plays.
#pragma once

#include <gtest/gtest.h>

#include "src/transport/channel/channel.h"

namespace layercast::test {

// Host memory is always reached, and is not asked for.
inline void ExpectReachesItsOwnDeviceAlone(const OfferingEnd& publisher, const FetchingEnd& receiver) {
  for (const Device& device : {Device{}, Device{Device::Kind::kCuda, 0}, Device{Device::Kind::kCuda, 2}}) {
    EXPECT_FALSE(publisher.reads_from(device));
    EXPECT_FALSE(receiver.writes_to(device));
  }
  EXPECT_TRUE(publisher.reads_from({Device::Kind::kCuda, 1}));
  EXPECT_TRUE(receiver.writes_to({Device::Kind::kCuda, 1}));
}

}  // namespace layercast::test
