"""Plain text of our own on which a mended model's loss must not rise: no advice, no chat, varied matter."""

from __future__ import annotations

PLAIN_TEXT: tuple[str, ...] = (
    "The river rises in the hills north of the town and runs south for sixty miles before it reaches the sea. In "
    "spring the meadows along its banks are under water for weeks, and the old road is closed.",
    "Bread needs only flour, water, salt and yeast. The dough is mixed, left to rise until it has doubled, shaped, "
    "and left to rise again. A hot oven and a little steam give it a thin, crisp crust.",
    "Sound travels faster in water than in air, and faster still in steel. The speed depends on how stiff the "
    "material is and on how dense: the stiffer it is, the sooner a push at one end is felt at the other.",
    "The library opened in 1911 with four thousand books. By the end of its first year it had lent out each of them "
    "twice on average, and the council voted to add a reading room for children.",
    "To change a bicycle tire, first let out all the air and take the wheel off. Work one edge of the tire over the "
    "rim, pull out the tube, and check the inside of the tire for glass or thorns before you fit the new one.",
    "A leap year has 366 days. The extra day is added in February, because the earth takes a little more than 365 "
    "days to go around the sun, and without it the seasons would slowly drift through the calendar.",
    "The company reported sales of 42 million dollars for the quarter, up from 38 million a year earlier. Costs "
    "rose as well, mainly for freight and energy, so that profit stayed almost the same.",
    "Bees find their way by the sun. When a forager returns to the hive it dances on the comb, and the angle of the "
    "dance tells the others in which direction to fly, while its length tells them how far.",
    "The old harbor wall was built of granite blocks without mortar. Each block weighs about two tons, and they "
    "were set in place at low tide with a wooden crane that was worked by eight men.",
    "In a queue, the item that was added first is taken out first. In a stack it is the other way round: what was "
    "put on top last comes off first. Both can be kept in a simple list.",
    "Rain fell through the night and stopped shortly before dawn. When the sun came up, the fields were full of "
    "small pools, and a thin mist lay over the lower part of the valley until nine.",
    "The violin has four strings tuned in fifths. Pressing a string against the fingerboard shortens the part that "
    "swings, and the tone gets higher; the body of the instrument makes it loud enough to fill a hall.",
)
