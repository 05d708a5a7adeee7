"""A stand-in for your agent, so that the suite passes at once. Put your own in its place."""

CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Kenya": "Nairobi", "Peru": "Lima", "Canada": "Ottawa"}


def answer(question: str) -> str:
    """Return the agent's answer to a test case's input. It may be async, a generator or a class with __call__, too."""
    for country, capital in CAPITALS.items():
        if country in question:
            return f"The capital of {country} is {capital}."
    return f"It is {sum(int(word) for word in question.strip('?').split() if word.isdecimal())}."
