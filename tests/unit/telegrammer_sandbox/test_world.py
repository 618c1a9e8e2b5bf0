"""Users, chats and messages."""

from telegrammer_sandbox.world import User, World, text_content

BOT = User(123456, "Gate", username="gate_example_bot", is_bot=True)
ANN, TEAM, OPERATIONS, NEWS = 5000000001, -4000000001, -1002000000001, -1001000000003


def ids_in(world: World, *chat_ids: int) -> list[object]:
    ann = world.people[ANN]
    posts = (world.post(world.chat(c), ann, 1.9, text_content("x")) for c in chat_ids)
    return [message["message_id"] for message in posts]


def test_small_chats_share_message_ids_and_big_ones_have_their_own() -> None:
    assert ids_in(World(BOT), ANN, TEAM, OPERATIONS, ANN, NEWS, OPERATIONS) == [1, 2, 1, 3, 1, 2]


def test_a_message_has_the_shape_that_telegram_gives_it() -> None:
    world = World(BOT)
    message = world.post(world.chat(ANN), world.people[ANN], 1.9, text_content("/start x"))

    assert list(message) == ["message_id", "from", "chat", "date", "text", "entities"]
    assert message["date"] == 1
    names = {"first_name": "Ann", "last_name": "Example", "username": "ann_example"}
    assert message["from"] == {"id": ANN, "is_bot": False, **names, "language_code": "en"}
    assert message["chat"] == {"id": ANN, **names, "type": "private"}
    assert message["entities"] == [{"offset": 0, "length": 6, "type": "bot_command"}]


def test_a_channel_speaks_for_itself() -> None:
    world = World(BOT)
    message = world.post(world.chat(NEWS), world.people[ANN], 1, text_content("x"))

    assert "from" not in message
    assert message["sender_chat"] == message["chat"]


def test_an_unknown_chat_is_made_up_by_the_form_of_its_id() -> None:
    world = World(BOT)

    assert world.chat(77).as_json() == {
        "id": 77,
        "first_name": "User",
        "last_name": "77",
        "type": "private",
    }
    assert world.chat(-77).type == "group"
    assert world.chat(-1000000000077).type == "supergroup"
    assert world.chat(77) is world.chat(77)


def test_only_public_chats_are_found_by_name_and_in_any_case() -> None:
    world = World(BOT)

    found = world.find("@OPS_example")
    assert found is not None
    assert found.id == OPERATIONS
    assert world.find("@ann_example") is None
    assert world.find("@") is None


def test_a_migrated_group_points_to_a_supergroup_whose_ids_begin_at_one() -> None:
    world = World(BOT)
    first = world.migrate(world.chat(TEAM))
    second = world.migrate(world.chat(-78))

    assert world.chat(TEAM).migrated_to == first.id
    assert first.type == "supergroup"
    assert first.id != second.id
    assert ids_in(world, first.id) == [1]
