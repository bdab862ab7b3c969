#include "src/net/zmq/listening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <string>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ListeningTest : public ::testing::Test {
 protected:
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  Listening Bind(zmq::socket_t& socket, const std::string& endpoint) { return {socket, "engine", endpoint, false}; }

  TempFolder folder_;
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  zmq::socket_t other_{context_, zmq::socket_type::router};
};

TEST_F(ListeningTest, TellsThePortThatWasFound) {
  EXPECT_THAT(Bind(socket_, "tcp://127.0.0.1:0").endpoint(), ::testing::MatchesRegex("tcp://127.0.0.1:[1-9][0-9]*"));
}

TEST_F(ListeningTest, AFileThatIsNoSocketStays) {
  folder_.Write("model.safetensors", "weights");
  EXPECT_THAT([&] { Bind(socket_, "ipc://" + At("model.safetensors")); },
              ThrowsMessage<Error>(AllOf(HasSubstr("engine endpoint 'ipc://"), HasSubstr("model.safetensors"),
                                         HasSubstr("is there already, and it is no socket"))));
  EXPECT_EQ(folder_.Read("model.safetensors"), "weights");
}

TEST_F(ListeningTest, NobodyTakesAnEndpointFromAnother) {
  const Listening first = Bind(socket_, "ipc://" + At("socket"));
  EXPECT_THAT([&] { Bind(other_, "ipc://" + At("socket")); },
              ThrowsMessage<Error>(HasSubstr("another process listens there")));
  EXPECT_TRUE(std::filesystem::is_socket(At("socket")));
}

TEST_F(ListeningTest, TheSocketGoesWithTheOneThatListened) {
  { const Listening first = Bind(socket_, "ipc://" + At("socket")); }
  EXPECT_FALSE(std::filesystem::exists(At("socket")));
}

// As a process leaves it that was killed.
TEST_F(ListeningTest, ASocketThatNobodyListensAtIsReplaced) {
  {
    const UniqueFd gone(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    At("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(gone.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ASSERT_TRUE(std::filesystem::is_socket(At("socket")));
  EXPECT_EQ(Bind(socket_, "ipc://" + At("socket")).endpoint(), "ipc://" + At("socket"));
}

}  // namespace
}  // namespace layercast
