#include "src/net/keys/admitted_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "layercast/error.h"
#include "src/wire/frames.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AdmittedKeysTest : public ::testing::Test {
 protected:
  // As an editor saves: a new file takes the old one's name.
  void Write(const std::string& text) const {
    const std::filesystem::path fresh = folder_.path() / "fresh";
    std::ofstream(fresh) << text;
    std::filesystem::rename(fresh, path_);
  }
  static Roles Of(std::initializer_list<Role> roles) {
    Roles all;
    for (const Role role : roles) all.Add(role);
    return all;
  }
  TempFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "clients";
  const PublicKey a_ = RandomKeyPair().public_key;
  const PublicKey b_ = RandomKeyPair().public_key;
};

TEST_F(AdmittedKeysTest, EachLineHasAKeyItsRolesAndAName) {
  const std::string text = "# a comment\n\n" + ClientLine(a_, Of({Role::kRead, Role::kReload}), "fleet-a") + "\n  " +
                           ToText(b_) + "\tgenerate\r\n";
  const KeyTable table = ParseClients(text, "clients");
  ASSERT_EQ(table.size(), 2U);
  EXPECT_EQ(table.at(a_).roles, Of({Role::kRead, Role::kReload}));
  EXPECT_EQ(table.at(a_).name, "fleet-a");
  EXPECT_EQ(table.at(b_).roles, Of({Role::kGenerate}));
}

TEST_F(AdmittedKeysTest, ALineThatCannotBeReadRefusesTheListAndIsNamed) {
  const std::string good = ToText(a_) + " read\n";
  const auto error = [&](const std::string& line) {
    return ErrorOf([&] { ParseClients(good + line, "clients"); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error(ToText(b_) + " write"), HasSubstr("line 2: expected roles"));
  EXPECT_THAT(error(ToText(b_)), HasSubstr("expected roles"));
  EXPECT_THAT(error(ToText(b_) + " read, reload"), HasSubstr("expected roles"));
  EXPECT_THAT(error(ToText(b_) + " read a b"), HasSubstr("got more"));
  EXPECT_THAT(error(ToText(a_) + " read"), HasSubstr("twice"));
  EXPECT_THAT(error("hunter2 read"), ::testing::AllOf(HasSubstr("a key of 64"), Not(HasSubstr("hunter2"))));
}

TEST_F(AdmittedKeysTest, AListThatHasChangedIsTakenUp) {
  Write(ClientLine(a_, Roles::All(), "a") + "\n");
  AdmittedKeys keys(path_);
  EXPECT_FALSE(keys.Refresh());
  Write(ClientLine(a_, Roles::All(), "a") + "\n" + ClientLine(b_, Of({Role::kRead}), "b") + "\n");
  EXPECT_TRUE(keys.Refresh());
  EXPECT_NE(keys.Find(b_), nullptr);
  Write(ClientLine(b_, Of({Role::kRead}), "b") + "\n");
  EXPECT_TRUE(keys.Refresh());
  EXPECT_EQ(keys.Find(a_), nullptr);
}

TEST_F(AdmittedKeysTest, AListThatOthersCanWriteIsRefused) {
  Write(ClientLine(a_, Roles::All(), "a") + "\n");
  std::filesystem::permissions(path_, std::filesystem::perms::group_write, std::filesystem::perm_options::add);
  EXPECT_THAT(ErrorOf([&] { AdmittedKeys{path_}; }, ErrorCode::kInvalidArgument), HasSubstr("others can write"));
}

TEST_F(AdmittedKeysTest, AListThatIsBrokenOrGoneLeavesTheOldOne) {
  Write(ClientLine(a_, Roles::All(), "a") + "\n");
  AdmittedKeys keys(path_);
  Write("nonsense\n");
  EXPECT_FALSE(keys.Refresh());
  EXPECT_NE(keys.Find(a_), nullptr);
  std::filesystem::remove(path_);
  EXPECT_FALSE(keys.Refresh());
  EXPECT_NE(keys.Find(a_), nullptr);
  Write(ClientLine(b_, Roles::All(), "b") + "\n");
  EXPECT_TRUE(keys.Refresh());
  EXPECT_EQ(keys.Find(a_), nullptr);
}

TEST(RoleTable, HasEveryMessageThatAReceiverSends) {
  const std::set<std::string_view> of_publishers = {
      "welcome",         "need_schedule",    "subscribed",     "tensors_ready",    "stream_end",   "pong",
      "refused",         "status_answer",    "more_digests",   "fetch_from",       "chunks_ready", "serving_cost",
      "versions_answer", "published_folder", "signed_digests", "offered_versions", "delta"};
  const auto expect = [&]<std::size_t... kTypes>(std::index_sequence<kTypes...>) {
    for (const wire::Message& message : {wire::Message(std::in_place_index<kTypes>)...}) {
      const std::string_view name = wire::MessageName(message);
      EXPECT_NE(RoleFor(name).has_value(), of_publishers.contains(name)) << name;
    }
  };
  expect(std::make_index_sequence<std::variant_size_v<wire::Message>>());
}

TEST(RoleTable, LetsNoneButPublishersChangeWhatIsKept) {
  for (const char* const order : {"pin_version", "evict_version", "publish_folder"}) {
    EXPECT_EQ(RoleFor(order), Role::kPublish) << order;
  }
  EXPECT_EQ(RoleFor("versions"), Role::kRead);
}

// The table of methods in the engine's page, which a method that is added joins.
TEST(RoleTable, HasEveryMethodOfAnEngine) {
  std::ifstream page(RPC_PAGE);
  int methods = 0;
  for (std::string line; std::getline(page, line) && !line.starts_with("###");) {
    if (!line.starts_with("| `")) continue;
    const std::string method = line.substr(3, line.find('`', 3) - 3);
    EXPECT_TRUE(RoleFor(method)) << method;
    ++methods;
  }
  EXPECT_GT(methods, 20);
}

TEST(RoleTable, HasNoRoleForWhatItDoesNotKnow) { EXPECT_FALSE(RoleFor("format_disk")); }

}  // namespace
}  // namespace layercast::testing
