// What the member said last, and who looks.

export const known = { who: null, quorum: null, brokers: null, transactions: null, topics: null, groups: null };
export const askedAt = { brokers: -Infinity, transactions: -Infinity, topics: -Infinity, groups: -Infinity }; // When they were answered last.

export const leads = () => known.quorum !== null && known.quorum.role === "leader";
export const may = (role) => known.who !== null && known.who.roles.includes(role);
