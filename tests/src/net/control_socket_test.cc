// Where the control connection of a channel is: what is written is read, what is damaged is refused.
#include "src/net/control_socket.h"

#include <gtest/gtest.h>

#include "layercast/error.h"

namespace layercast {
namespace {

TEST(ControlAddress, IsReadAsItWasWritten) {
  for (const char* host : {"127.0.0.1", "::1", "trainer.example"}) {
    const ControlAddress address{"ucx", host, 4711, RandomToken()};
    const ControlAddress read = ControlAddress::Parse("ucx", address.Text());
    EXPECT_EQ(read.port, 4711);
    EXPECT_EQ(read.key, address.key);
    EXPECT_EQ(read.host, std::string(host) == "::1" ? "[::1]" : host);
    EXPECT_EQ(read.Text(), address.Text());
  }
  const std::string key(32, 'a');
  for (const std::string wrong : {"ucx://h:1", "ucx://h:1#aa", "ucx://h#", "ucx://h:x#", "ucx://:1#", "ucx://h:70000#",
                                  "tcp://h:1#", "ucx://h:1 #"}) {
    EXPECT_THROW(ControlAddress::Parse("ucx", wrong.back() == '#' ? wrong + key : wrong), Error) << wrong;
  }
  EXPECT_THROW(ControlAddress::Parse("ucx", "ucx://h:1#" + std::string(32, 'g')), Error);
}

}  // namespace
}  // namespace layercast
