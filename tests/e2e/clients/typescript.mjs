// The TypeScript SDK's client, driven from outside: one JSON command a line in, one JSON answer a line out.
// Usage: node typescript.mjs SDK_DIRECTORY stdio COMMAND ARGUMENT… | node typescript.mjs SDK_DIRECTORY http URL TOKEN
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, kind, ...rest] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${sdk}/dist/esm/client/${file}`).href);
const { Client } = await load("index.js");

async function transport() {
    if (kind === "http") {
        const { StreamableHTTPClientTransport } = await load("streamableHttp.js");
        const headers = { Authorization: `Bearer ${rest[1]}` };
        return new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers } });
    }
    const { StdioClientTransport } = await load("stdio.js");
    return new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env, stderr: "ignore" });
}

const client = new Client({ name: "typescript", version: "1" });
await client.connect(await transport());

async function list() {
    const tools = [];
    let cursor;
    do {
        const page = await client.listTools({ cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
    } while (cursor);
    return tools;
}

for await (const line of createInterface({ input: process.stdin })) {
    const { method, name, args } = JSON.parse(line);
    let answer;
    try {
        answer = { result: method === "list" ? await list() : await client.callTool({ name, arguments: args }) };
    } catch (error) {
        answer = { error: { code: error.code ?? null, message: String(error.message) } };
    }
    console.log(JSON.stringify(answer));
}
await client.close();
