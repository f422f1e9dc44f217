// ---- examples: what stands in the fields at first, so that Enter shows something ----

const EXAMPLES = {
  blank: (mask) => `She opened the ${mask} and went into the room.`,
  review: "A film to see twice.",
  names: "Anna Smith moved from Berlin to New York to work for Siemens.",
  question: "Where does the river rise?",
  context: "The Rhine rises in the Swiss Alps. It flows through Germany and the Netherlands, and ends in the North Sea.",
  beginning: "It began to rain,",
  endings: "so we opened our umbrellas.\nso the moon ate the soup.\nso the cat drove home.",
  sentence: "A man plays the guitar.",
  sentences: "Someone makes music.\nThe ship left the harbour.\nA boat sails out to sea.\nThe cook tastes the soup.\nA woman sings a song.",
  query: "How do I reset my password?",
  passages: "Your parcel arrives in two days.\nChoose “Forgot my login” on the first page.\nThe shop is closed on Sundays.\nWe ship to other countries.",
  plain: "The cat sat on the mat and looked at the moon.",
  story: "Once upon a time",
  split: "Unbelievable: tokenizers split rare words into pieces.",
};
