// Questions to the node. An answer that is an error is thrown with its text and its status.

export async function ask(path, query) {
  const answer = await fetch(`api/${path}?${new URLSearchParams(query)}`);
  if (answer.ok) return answer.json();
  throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
}
