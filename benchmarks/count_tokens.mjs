// Reads a text from stdin and prints how many tokens it has (o200k_base). The package is found from the directory given.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(process.argv[2] + "/");
const { encode } = require("gpt-tokenizer");
console.log(encode(readFileSync(0, "utf8")).length);
