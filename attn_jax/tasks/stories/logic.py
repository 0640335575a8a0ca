"""Worlds of relations: tasks 4 and 19 (directions), 15 (deduction), 16 (induction), 17 (position), 18 (size), and 20
(motives).
"""

import itertools
import random

from attn_jax.tasks.stories.story import PLACES, Story, moves, other

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
MIDDLE_LAST = 2 / 3  # task 4: probability that the middle place is the second of a statement

AFRAID = ("gertrude", "winona", "jessica", "emily")
PLURAL = {"mouse": "mice", "cat": "cats", "wolf": "wolves", "sheep": "sheep"}

COLOURED = ("lily", "bernhard", "greg", "julius", "brian")
ANIMALS = ("frog", "lion", "rhino", "swan")
COLOURS = ("gray", "green", "white", "yellow")
LIKE_ITS_KIND = 0.54  # probability of the colour of an animal of the same kind; otherwise uniform

SHAPES = ("blue square", "pink rectangle", "red sphere", "red square", "triangle", "yellow square")
SIDES = {"above": (0, 1), "below": (0, -1), "to the right of": (1, 0), "to the left of": (-1, 0)}
SUBJECT_FIRST = 2 / 3  # probability that the middle shape is the subject of a statement

SMALL = ("chocolate", "box of chocolates")
LARGE = ("box", "chest", "container", "suitcase")

# Task 19: frequency in percent of the positions of the two path statements among the five; later ones are more
# frequent.
WAY = {(1, 2): 6, (1, 3): 6, (1, 4): 7, (1, 5): 12, (2, 3): 7, (2, 4): 8, (2, 5): 14, (3, 4): 9, (3, 5): 14, (4, 5): 17}
OUTER_FIRST = 0.57  # probability that the outer place of a step is the subject of its statement

THINKERS = ("sumit", "yann", "jason", "antoine")
MOTIVES = {
    "hungry": ("kitchen", "apple"),
    "thirsty": ("kitchen", "milk"),
    "bored": ("garden", "football"),
    "tired": ("bedroom", "pajamas"),
}
GET_VERBS = ("got", "took", "grabbed", "picked up")


def what_is_north_of(rng: random.Random) -> Story:
    """Task 4: two relations of three places on a line; asks for the first place of one relation.

    The question about "the a is north of the b" is "what is north of the b" or "what is the b south of". Evidence: the
    statement of the relation.
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
    """Task 15: asks what a person is afraid of, which depends on the kind of the person.

    Each kind is afraid of another random kind. The eight statements come in random order, except that the fear of a
    kind comes before its persons. Four questions about random persons. Evidence: the kind of the person, the kind's
    fear.
    """
    story = Story()
    fears, kinds = {}, {}
    number = {}
    while len(fears) + len(kinds) < len(PLURAL) + len(AFRAID):
        subject, kind = rng.choice([*PLURAL, *AFRAID]), rng.choice(list(PLURAL))
        if subject in fears or subject in kinds or (subject in AFRAID and kind not in fears):
            continue
        if subject in PLURAL:
            fears[subject] = other(rng, list(PLURAL), subject)
            number[subject] = story.say(f"{PLURAL[subject]} are afraid of {PLURAL[fears[subject]]}")
        else:
            kinds[subject] = kind
            number[subject] = story.say(f"{subject} is a {kind}")
    for _ in range(4):
        person = rng.choice(AFRAID)
        kind = kinds[person]
        story.ask(f"what is {person} afraid of", fears[kind], (number[person], number[kind]))
    return story


def what_colour(rng: random.Random) -> Story:
    """Task 16: asks for the unknown colour of an animal: the colour of the last other animal stated to be of its kind.

    The nine statements come in random order, except that the kind of an animal comes before its colour. One, three or
    four other animals are of the same kind. Evidence: the kind of the animal, the kind and the colour of the other one.
    """
    while True:
        story = Story()
        kinds: dict[str, str] = {}
        colours: dict[str, str] = {}
        number = {}
        while len(story.statements) < 2 * len(COLOURED) - 1:
            options = [(person, person not in kinds) for person in COLOURED if person not in colours]
            if len(colours) == len(COLOURED) - 1:  # the last animal gets no colour
                options = [(person, True) for person in COLOURED if person not in kinds]
            person, is_new = rng.choice(options)
            if is_new:
                kinds[person] = rng.choice(ANIMALS)
                number[person, "kind"] = story.say(f"{person} is a {kinds[person]}")
            else:
                same = [colours[one] for one in colours if kinds[one] == kinds[person]]
                colours[person] = rng.choice(same if same and rng.random() < LIKE_ITS_KIND else COLOURS)
                number[person, "colour"] = story.say(f"{person} is {colours[person]}")
        (subject,) = set(COLOURED) - set(colours)
        same_kind = [person for person in kinds if kinds[person] == kinds[subject] and person != subject]
        if len(same_kind) in (1, 3, 4):
            example = same_kind[-1]
            evidence = number[subject, "kind"], number[example, "kind"], number[example, "colour"]
            story.ask(f"what color is {subject}", colours[example], evidence)
            return story


def is_shape_there(rng: random.Random) -> Story:
    """Task 17: two outer shapes next to a middle one; asks whether an outer shape is on a side of the other.

    The outer shapes are never at the same place. Eight questions, half of them "yes", about a random side with that
    answer. A shape can be both right of and above another. Evidence: the statement about the subject, then the other.
    """
    story = Story()
    middle, *outer = rng.sample(SHAPES, 3)
    while True:
        sides = [rng.choice(list(SIDES)) for _ in outer]  # side of the middle shape on which each outer shape is
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
        sides_with_answer = [side for side, (sx, sy) in SIDES.items() if (sx * dx + sy * dy > 0) == (answer == "yes")]
        a, b = outer[::sign]
        story.ask(f"is the {a} {rng.choice(sides_with_answer)} the {b}", answer, (1, 2) if sign > 0 else (2, 1))
    return story


def is_larger(rng: random.Random) -> Story:
    """Task 18: asks whether one thing fits in another.

    The chocolate is the smallest thing, then the box of chocolates, then the others in random order. Five statements
    compare two random things each; five more follow until a comparison can be inferred from two of them. Five questions
    about inferred comparisons, half of them "yes"; in the files, early statements are evidence more often. Evidence:
    the two statements, first the one about the thing that the question takes as the larger one.
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
    """Task 19: asks for the path of two steps from one place to another, such as "n,e".

    The second step does not go back. Each of three other places is on a free side of a random place of the path, which
    gives five statements; two of these places can be at the same point of a map. Evidence: the statements of the steps.
    """
    story = Story()
    start, middle, goal, *others = rng.sample(PLACES, len(PLACES))
    first = rng.choice(list(OPPOSITE))
    second = other(rng, list(OPPOSITE), OPPOSITE[first])
    taken = {(start, first), (middle, OPPOSITE[first]), (middle, second), (goal, OPPOSITE[second])}
    relations = []  # (place, side, neighbour, probability that the place is the subject)
    for place in others:
        free = [slot for slot in itertools.product((start, middle, goal), OPPOSITE) if slot not in taken]
        neighbour, side = rng.choice(free)
        taken.add((neighbour, side))
        relations.append((place, side, neighbour, 0.5))
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
    """Task 20: someone is hungry, thirsty, bored or tired, goes to a place that helps, and gets a thing that helps.

    The first statement about a person is followed by the question where the person will go, the later statements by the
    question why. Random persons act until nobody can; each thing can be taken only once. Evidence: the first statement
    about the person.
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
