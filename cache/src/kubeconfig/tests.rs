//! What files give and what is refused, word for word.
