// Both halves of CURVE, over real sockets: who gets in, who does not, and who is put out.
#include "src/net/curve/key_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "layercast/error.h"
#include "src/net/curve/client_keys.h"
#include "src/net/keys/key_folder.h"
#include "src/net/zmq/poll_sockets.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};
// Long enough for what must not happen to happen: several handshakes take a few milliseconds.
constexpr std::chrono::milliseconds kSeveralHandshakes{600};

// One server and one client, moved on by one thread.
class KeyCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MakeServerFolder(folder_ / "server");
    client_key_ = MakeClientFolder(folder_ / "client", folder_ / "server");
  }
  void TearDown() override {
    client_.reset();
    server_.close();
    check_.reset();
  }

  // Lets the client in, in these roles, beside the server's own key; no role: not at all.
  void Admit(const std::string& roles) {
    std::ofstream(folder_ / "fresh") << (roles.empty() ? "# nobody\n" : ToText(client_key_) + " " + roles + " lou\n");
    std::filesystem::rename(folder_ / "fresh", folder_ / "server/clients");
  }
  Keys KeysIn(const std::string& name) const { return Keys::From({.folder = (folder_ / name).string()}); }

  void Listen(const Keys& keys) {
    limits_.emplace(context_, server_, ConnectionLimits::Options{.most_bytes = 1 << 20});
    check_.emplace(context_, server_, keys, "server");
    server_.bind("tcp://127.0.0.1:*");
    endpoint_ = server_.get(zmq::sockopt::last_endpoint);
  }

  struct Client {
    Client(zmq::context_t& context, const Keys& keys, const std::string& to)
        : socket(context, zmq::socket_type::dealer), admission("server " + to, keys), endpoint(to) {
      limits.emplace(context, socket, ConnectionLimits::Options{.most_bytes = 1 << 20});
      ConnectWithKeys(socket, keys);
      socket.set(zmq::sockopt::linger, 0);
      socket.set(zmq::sockopt::reconnect_ivl, 20);
      socket.connect(to);
      Say("hello");
    }
    void Say(const std::string& text) { socket.send(zmq::buffer(text), zmq::send_flags::dontwait); }
    std::optional<ConnectionLimits> limits;
    zmq::socket_t socket;
    Admission admission;
    const std::string endpoint;
  };
  void Connect(const Keys& keys) { client_.emplace(client_context_, keys, endpoint_); }

  // One turn of both ends. What the server hears is checked, and kept in `heard_` if it may be asked for.
  void Turn() {
    std::array<zmq::pollitem_t, 2> items = {{{server_.handle(), 0, ZMQ_POLLIN, 0}, check_ ? check_->item() : kNone}};
    PollSockets(items, std::chrono::milliseconds(10));
    if (check_) check_->Work(*limits_);
    for (zmq::message_t frame; server_.recv(frame, zmq::recv_flags::dontwait);) {
      if (frame.more()) continue;
      limits_->Heard(frame);
      heard_ = frame.to_string();
      if (check_) refusal_ = Refusal(frame, "reload_weights");
    }
    if (!client_ || heard_) return;
    if (client_->admission.Look(client_->socket, *client_->limits, endpoint_) == Admission::Now::kAgain) {
      client_->Say("hello again");
    }
  }
  std::string Refusal(zmq::message_t& frame, std::string_view request) const {
    try {
      check_->Expect(frame, request);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), kDenied);
      return error.what();
    }
  }
  template <typename Done>
  [[nodiscard]] bool Until(const Done& done, std::chrono::milliseconds patience = kPatience) {
    for (const Deadline deadline = Deadline::After(patience); !deadline.Passed();) {
      if (done()) return true;
      Turn();
    }
    return done();
  }
  bool Hears(std::chrono::milliseconds patience = kPatience) {
    return Until([&] { return heard_.has_value(); }, patience);
  }

  static constexpr zmq::pollitem_t kNone = {nullptr, -1, 0, 0};
  TempFolder folder_;
  PublicKey client_key_{};
  zmq::context_t context_;
  zmq::context_t client_context_;
  std::optional<ConnectionLimits> limits_;
  std::optional<KeyCheck> check_;
  zmq::socket_t server_{context_, zmq::socket_type::router};
  std::string endpoint_;
  std::optional<Client> client_;
  std::optional<std::string> heard_;
  std::string refusal_;
};

TEST_F(KeyCheckTest, WhoeverIsInTheListIsHeard) {
  Admit("reload");
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  EXPECT_TRUE(Hears());
  EXPECT_EQ(refusal_, "");
}

TEST_F(KeyCheckTest, AnUnknownKeyIsToldSoAndGetsInOnceItIsAdmitted) {
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  ASSERT_TRUE(Until([&] { return !client_->admission.why().empty(); }));
  EXPECT_THAT(client_->admission.why(), AllOf(HasSubstr("server tcp://127.0.0.1:"),
                                              HasSubstr("does not know this key: " + ShortText(client_key_))));
  EXPECT_FALSE(Hears(kSeveralHandshakes));
  Admit("reload");
  EXPECT_TRUE(Hears());
}

TEST_F(KeyCheckTest, AClientThatExpectsAnotherServersKeyIsToldSo) {
  MakeServerFolder(folder_ / "other");
  MakeClientFolder(folder_ / "stranger", folder_ / "other");
  Listen(KeysIn("server"));
  Connect(KeysIn("stranger"));
  ASSERT_TRUE(Until([&] { return !client_->admission.why().empty(); }));
  EXPECT_THAT(client_->admission.why(),
              HasSubstr("proved another server key than " + ShortText(KeysIn("other").server())));
  EXPECT_FALSE(Hears(kSeveralHandshakes));
}

TEST_F(KeyCheckTest, AClientWithoutKeysIsToldThatSomeAreWanted) {
  Listen(KeysIn("server"));
  Connect(Keys());
  ASSERT_TRUE(Until([&] { return !client_->admission.why().empty(); }));
  EXPECT_THAT(client_->admission.why(), HasSubstr("wants keys, none given"));
  EXPECT_FALSE(Hears(kSeveralHandshakes));
}

TEST_F(KeyCheckTest, AClientWithKeysIsToldThatTheServerHasNone) {
  Listen(Keys());
  Connect(KeysIn("client"));
  ASSERT_TRUE(Until([&] { return !client_->admission.why().empty(); }));
  EXPECT_THAT(client_->admission.why(), ::testing::AnyOf(HasSubstr("has no keys"), HasSubstr("or none at all")));
}

TEST_F(KeyCheckTest, WithoutKeysEverybodyMayDoEverything) {
  Listen(Keys());
  Connect(Keys());
  EXPECT_TRUE(Hears());
  EXPECT_EQ(refusal_, "");
}

TEST_F(KeyCheckTest, WhileNobodyAnswersForTheKeysNobodyGetsIn) {
  Admit("reload");
  Listen(KeysIn("server"));
  check_.reset();  // the check is gone: ZeroMQ has nobody to ask
  Connect(KeysIn("client"));
  EXPECT_FALSE(Hears(kSeveralHandshakes));
}

TEST_F(KeyCheckTest, WhileTheCheckIsSilentNobodyGetsIn) {
  Admit("reload");
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  const Deadline deadline = Deadline::After(kSeveralHandshakes);
  while (!deadline.Passed()) {  // the check is there, and does not work
    std::array<zmq::pollitem_t, 1> items = {{{server_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, std::chrono::milliseconds(10));
    zmq::message_t frame;
    ASSERT_FALSE(server_.recv(frame, zmq::recv_flags::dontwait));
  }
  EXPECT_TRUE(Hears()) << "it was kept out by something else";
}

TEST_F(KeyCheckTest, ARoleThatAKeyHasNotIsRefusedAndNamed) {
  Admit("read,generate");
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  ASSERT_TRUE(Hears());
  EXPECT_THAT(refusal_,
              AllOf(HasSubstr(ShortText(client_key_)), HasSubstr("(lou)"), HasSubstr("'reload_weights'"),
                    HasSubstr("role 'reload'"), HasSubstr("it has read,generate"), HasSubstr("server/clients")));
}

TEST_F(KeyCheckTest, ARoleThatIsTakenAwayIsMissedByTheNextRequest) {
  Admit("reload");
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  ASSERT_TRUE(Hears());
  ASSERT_EQ(refusal_, "");
  Admit("read");
  EXPECT_TRUE(Until([&] {
    client_->Say("once more");
    return !refusal_.empty();
  }));
  EXPECT_EQ(limits_->Ended(), 0U);
}

TEST_F(KeyCheckTest, ARevokedKeyIsCutAndMustAskAnew) {
  Admit("reload");
  Listen(KeysIn("server"));
  Connect(KeysIn("client"));
  ASSERT_TRUE(Hears());
  Admit("");
  EXPECT_TRUE(Until([&] { return limits_->size() == 0; }));
  heard_.reset();
  client_->Say("let me in");
  EXPECT_TRUE(Until([&] { return !client_->admission.why().empty(); }));
  EXPECT_THAT(client_->admission.why(), HasSubstr("does not know this key"));
  EXPECT_FALSE(heard_);
}

TEST_F(KeyCheckTest, AFolderWithoutAServersKeyCannotListen) {
  EXPECT_THAT(ErrorOf([&] { Listen(KeysIn("client")); }, ErrorCode::kNotFound), HasSubstr("client/"));
}

}  // namespace
}  // namespace layercast::testing
