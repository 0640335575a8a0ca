"""Worlds of relations: tasks 4 and 19 (directions), 15 (deduction), 16 (induction), 17 (position), 18 (size), and 20
(motives).
"""

import itertools
import random

from attn_jax.tasks.babi.story import PLACES, Story, moves, other

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
MIDDLE_LAST = 2 / 3  # task 4: how often the place between the two others is the second of a statement

AFRAID = ("gertrude", "winona", "jessica", "emily")
PLURAL = {"mouse": "mice", "cat": "cats", "wolf": "wolves", "sheep": "sheep"}

COLOURED = ("lily", "bernhard", "greg", "julius", "brian")
ANIMALS = ("frog", "lion", "rhino", "swan")
COLOURS = ("gray", "green", "white", "yellow")
LIKE_ITS_KIND = 0.54  # how often a colour is that of one of the same kind, else it is any

SHAPES = ("blue square", "pink rectangle", "red sphere", "red square", "triangle", "yellow square")
SIDES = {"above": (0, 1), "below": (0, -1), "to the right of": (1, 0), "to the left of": (-1, 0)}
SUBJECT_FIRST = 2 / 3  # how often the shape between the two others is the subject of a statement

SMALL = ("chocolate", "box of chocolates")
LARGE = ("box", "chest", "container", "suitcase")

# Task 19: which two of the five statements are the way, in hundredths; it ends, more than not, with the last.
WAY = {(1, 2): 6, (1, 3): 6, (1, 4): 7, (1, 5): 12, (2, 3): 7, (2, 4): 8, (2, 5): 14, (3, 4): 9, (3, 5): 14, (4, 5): 17}
OUTER_FIRST = 0.57  # how often the way's outer place is the subject of a statement

THINKERS = ("sumit", "yann", "jason", "antoine")
MOTIVES = {
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "bored": ("garden", "football"),
    "tired": ("bedroom", "pajamas"),
}
GET_VERBS = ("got", "took", "grabbed", "picked up")


def what_is_north_of(rng: random.Random) -> Story:
    """Task 4: three places on a line, two relations, and a question that names the second place of one of them.

    "The a is north of the b" is asked for as "what is north of the b" or "what is the b south of". Evidence: it.
    """
    story = Story()
    first, middle, last = rng.sample(PLACES, 3)
    side = rng.choice(list(OPPOSITE))
    relations = []
    for outer, seen in ((first, side), (last, OPPOSITE[side])):
        in_order = rng.random() < MIDDLE_LAST
        relations.append((outer, seen, middle) if in_order else (middle, OPPOSITE[seen], outer))
    rng.shuffle(relations)
    for a, seen, b in relations:
        story.say(f"the {a} is {seen} of the {b}")
    number = rng.choice((1, 2))
    a, seen, b = relations[number - 1]
    story.ask(rng.choice((f"what is {seen} of the {b}", f"what is the {b} {OPPOSITE[seen]} of")), a, (number,))
    return story


def what_afraid_of(rng: random.Random) -> Story:
    """Task 15: what is a person afraid of? What its kind is. Each kind is afraid of any other.

    The next of the eight statements is any that is left, of a person only where the kind's fear has been told. Four
    questions, each about any person. Evidence: the person's kind, then the kind's fear.
    """
    story = Story()
    fears, kinds = {}, {}
    number = {}
    while len(fears) + len(kinds) < len(PLURAL) + len(AFRAID):
        told, kind = rng.choice([*PLURAL, *AFRAID]), rng.choice(list(PLURAL))
        if told in fears or told in kinds or (told in AFRAID and kind not in fears):
            continue
        if told in PLURAL:
            fears[told] = other(rng, list(PLURAL), told)
            number[told] = story.say(f"{PLURAL[told]} are afraid of {PLURAL[fears[told]]}")
        else:
            kinds[told] = kind
            number[told] = story.say(f"{told} is a {kind}")
    for _ in range(4):
        person = rng.choice(AFRAID)
        kind = kinds[person]
        story.ask(f"what is {person} afraid of", fears[kind], (number[person], number[kind]))
    return story


def what_colour(rng: random.Random) -> Story:
    """Task 16: what colour has the person whose colour is not told? That of the last one told to be of the same kind.

    The next of the nine statements is any that can be: the kind of a person, or the colour of a person whose kind has
    been told. One or at least three others are of the asked person's kind. Evidence: the person's kind, the other's
    kind, the other's colour.
    """
    while True:
        story = Story()
        kinds: dict[str, str] = {}
        colours: dict[str, str] = {}
        number = {}
        while len(story.statements) < 2 * len(COLOURED) - 1:
            options = [(person, person not in kinds) for person in COLOURED if person not in colours]
            if len(colours) == len(COLOURED) - 1:  # one stays without
                options = [(person, True) for person in COLOURED if person not in kinds]
            person, is_new = rng.choice(options)
            if is_new:
                kinds[person] = rng.choice(ANIMALS)
                number[person, "kind"] = story.say(f"{person} is a {kinds[person]}")
            else:
                same = [colours[one] for one in colours if kinds[one] == kinds[person]]
                colours[person] = rng.choice(same if same and rng.random() < LIKE_ITS_KIND else COLOURS)
                number[person, "colour"] = story.say(f"{person} is {colours[person]}")
        (asked,) = set(COLOURED) - set(colours)
        alike = [person for person in kinds if kinds[person] == kinds[asked] and person != asked]
        if len(alike) in (1, 3, 4):
            evidence = number[asked, "kind"], number[alike[-1], "kind"], number[alike[-1], "colour"]
            story.ask(f"what color is {asked}", colours[alike[-1]], evidence)
            return story


def is_shape_there(rng: random.Random) -> Story:
    """Task 17: three shapes, of which one is next to both others; is one of these on a side of the other?

    The two are never at the same place. Eight questions, half of them "yes"; the asked side is any that has this
    answer. Something right of another may be above it too. Evidence: the statement of the asked shape, then the other.
    """
    story = Story()
    middle, *outer = rng.sample(SHAPES, 3)
    while True:
        sides = [rng.choice(list(SIDES)) for _ in outer]  # of each outer shape, seen from the one between
        (x, y), (other_x, other_y) = (SIDES[side] for side in sides)
        if (x, y) != (other_x, other_y):
            break
    for shape, side in zip(outer, sides, strict=True):
        if rng.random() < SUBJECT_FIRST:
            opposite = next(name for name, step in SIDES.items() if step == tuple(-n for n in SIDES[side]))
            story.say(f"the {middle} is {opposite} the {shape}")
        else:
            story.say(f"the {shape} is {side} the {middle}")
    for _ in range(8):
        sign = rng.choice((1, -1))
        answer = rng.choice(("yes", "no"))
        dx, dy = sign * (x - other_x), sign * (y - other_y)
        fitting = [side for side, (sx, sy) in SIDES.items() if (sx * dx + sy * dy > 0) == (answer == "yes")]
        a, b = outer[::sign]
        story.ask(f"is the {a} {rng.choice(fitting)} the {b}", answer, (1, 2) if sign > 0 else (2, 1))
    return story


def is_larger(rng: random.Random) -> Story:
    """Task 18: does one thing fit in another? The chocolate is the smallest thing, then come the box of chocolates and
    the others in any order.

    Five statements compare any two things; while nothing follows from two of them, five more. Five questions about any
    that follows in two steps, half of them "yes"; in the files those that rest on early statements are more frequent.
    Evidence: two statements, beginning with the thing that the question has as the larger one.
    """
    story = Story()
    order = [*SMALL, *rng.sample(LARGE, len(LARGE))]
    numbers: dict[tuple[str, str], list[int]] = {}
    ways: dict[tuple[str, str], list[tuple[int, int]]] = {}
    while not ways:
        for _ in range(5):
            i, j = sorted(rng.sample(range(len(order)), 2))
            small, large = order[i], order[j]
            text = rng.choice((f"the {small} fits inside the {large}", f"the {large} is bigger than the {small}"))
            numbers.setdefault((small, large), []).append(story.say(text))
        for (small, between), (other_between, large) in itertools.permutations(numbers, 2):
            if between == other_between:
                pairs = itertools.product(numbers[small, between], numbers[between, large])
                ways.setdefault((small, large), []).extend(pairs)
    for _ in range(5):
        small, large = rng.choice(list(ways))
        first, second = rng.choice(ways[small, large])
        answer = rng.choice(("yes", "no"))
        if answer == "yes":
            first, second = second, first
        else:
            small, large = large, small
        text = rng.choice((f"does the {small} fit in the {large}", f"is the {large} bigger than the {small}"))
        story.ask(text, answer, (first, second))
    return story


def which_way(rng: random.Random) -> Story:
    """Task 19: how does one go from a place to another? In two steps, not back and forth; the answer is as "n,e".

    Three more places are next to one of the way's three, each to a side of it that is free, which makes five
    statements; these three places may be at the same spot of a map. Evidence: the statements of the two steps.
    """
    story = Story()
    start, middle, goal, *others = rng.sample(PLACES, len(PLACES))
    first = rng.choice(list(OPPOSITE))
    second = other(rng, list(OPPOSITE), OPPOSITE[first])
    taken = {(start, first), (middle, OPPOSITE[first]), (middle, second), (goal, OPPOSITE[second])}
    relations = []
    for place in others:
        near, side = rng.choice(
            [slot for slot in itertools.product((start, middle, goal), OPPOSITE) if slot not in taken]
        )
        taken.add((near, side))
        relations.append((place, side, near, 0.5))
    steps = [(start, OPPOSITE[first], middle, OUTER_FIRST), (goal, second, middle, OUTER_FIRST)]
    (one, two), *_ = rng.choices(list(WAY), WAY.values())
    if rng.random() < 0.5:
        one, two = two, one
    for number in range(1, 6):
        a, side, b, share = steps[0] if number == one else steps[1] if number == two else relations.pop()
        in_order = rng.random() < share
        story.say(f"the {a} is {side} of the {b}" if in_order else f"the {b} is {OPPOSITE[side]} of the {a}")
    story.ask(f"how do you go from the {start} to the {goal}", f"{first[0]},{second[0]}", (one, two))
    return story


def why(rng: random.Random) -> Story:
    """Task 20: someone is hungry, thirsty, bored or tired, goes where this is helped, and gets what helps.

    After the first statement of a person: where will the person go? After the others: why? The four persons take
    turns in any order; the story ends when nobody can do anything, for each thing can be got only once. Evidence: the
    person's first statement.
    """
    story = Story()
    motive = {person: rng.choice(list(MOTIVES)) for person in THINKERS}
    first: dict[str, int] = {}
    stage = dict.fromkeys(THINKERS, 0)
    got: set[str] = set()
    while True:
        able = [one for one in THINKERS if stage[one] < 2 or (stage[one] == 2 and MOTIVES[motive[one]][1] not in got)]
        if not able:
            return story
        person = rng.choice(able)
        place, thing = MOTIVES[motive[person]]
        if stage[person] == 0:
            first[person] = story.say(f"{person} is {motive[person]}")
            text, answer = f"where will {person} go", place
        elif stage[person] == 1:
            story.say(moves(rng, person, place))
            text, answer = f"why did {person} go to the {place}", motive[person]
        else:
            got.add(thing)
            story.say(f"{person} {rng.choice(GET_VERBS)} the {thing} there")
            text, answer = f"why did {person} get the {thing}", motive[person]
        stage[person] += 1
        story.ask(text, answer, (first[person],))
