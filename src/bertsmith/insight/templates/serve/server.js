// ---- server: requests to the server that this page came from, and the same as a line for a shell ----

let key = ""; // held here and nowhere else

/** An answer other than 200: its status, and the one line that says why. */
class Refusal extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

/** The address of a route; a proxy may have put the server below a path. */
const address = (path) => new URL(path.slice(1), location.href).href;

async function ask(path, body, signal) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path), { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refusal(0, "server: does not answer. Look whether it is running.");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, error?.message ?? error ?? `server: answers with status ${answer.status}.`);
}

const askJson = async (...request) => (await ask(...request)).json();

/** The same request as a line for a shell; the key stays in a variable of the shell. */
function curl(path, body, file) {
  const authorised = key ? ' -H "Authorization: Bearer $BERTSMITH_KEY"' : "";
  if (holdsImage(body)) {
    const quoted = (value) => value.replaceAll("'", String.raw`'\''`);
    const fields = Object.entries(body).filter(([name]) => name !== "inputs").map(([name, value]) => ` -F '${name}=${quoted(`${value}`)}'`);
    return `curl ${address(path)}${authorised} -F image=@photo.jpg${fields.join("")}${file ? ` -o ${file}` : ""}`;
  }
  const held = JSON.stringify(body).replaceAll("'", String.raw`'\''`);
  return `curl ${address(path)}${authorised} -H 'Content-Type: application/json' -d '${held}'${file ? ` -o ${file}` : ""}`;
}
