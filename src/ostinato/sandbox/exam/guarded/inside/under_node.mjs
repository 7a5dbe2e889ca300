// The run of a suite of Node's own test runner: the planned tests alone, in the planned order, each reported.
//
// The verifier sends this program on standard input, behind `const ORDER = {…};`, so the nonce lies in no file,
// argument or variable, and nothing of the repository is loaded before the channel is open. Functions that the
// channel needs are taken now: what tested code puts in their place later is not called.
import assert from "node:assert";
import { createHmac, Hmac, randomBytes } from "node:crypto";
import fs from "node:fs";
import Module, { createRequire, register } from "node:module";
import path from "node:path";
import nodeTest from "node:test";
import { pathToFileURL } from "node:url";

const CHANNEL = 9; // the command's standard output, as the shell hands it over
const { root, order, known, hidden } = ORDER;
const send = channel(ORDER.nonce);
delete ORDER.nonce;
const sign = (text) => send({ sign: text });

/** Return the function that signs and numbers one report, as `SuiteChannel` does in Python. */
function channel(nonce) {
  const key = Buffer.from(nonce, "hex");
  const { apply } = Reflect;
  const { update, digest } = Hmac.prototype;
  const { writeSync } = fs;
  const { stringify } = JSON;
  const ascii = (text) => apply(replace, text, [/[^\x20-\x7e]/g, escape]);
  const { replace, charCodeAt, padStart } = String.prototype;
  const toString = Number.prototype.toString;
  const escape = (c) => "\\u" + apply(padStart, apply(toString, apply(charCodeAt, c, [0]), [16]), [4, "0"]);
  let count = 0;
  return (report) => {
    const body = ascii(stringify(report));
    const hmac = createHmac("sha256", key);
    apply(update, hmac, [count + " " + body]);
    const line = apply(digest, hmac, ["hex"]) + " " + body + "\n";
    for (let at = 0; at < line.length; ) {
      try {
        at += writeSync(CHANNEL, at ? line.slice(at) : line);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
      }
    }
    count += 1;
  };
}

// --- the planted tests -------------------------------------------------------------------------------------

/** Return the planted tests with the assertions that a test file gets now, by import or by `require`. */
async function plantedTests() {
  const fresh = "export {default as a} from 'node:assert'; export {default as s} from 'node:assert/strict';";
  const imported = await import(`data:text/javascript,${fresh}//${randomBytes(8).toString("hex")}`);
  const require = createRequire(path.join(root, "planted.cjs"));
  const [a, s, r] = [imported.a, imported.s, require("assert")];
  const bodies = {
    pass: () => (a.equal(1, 1), s.deepEqual([1], [1]), r.throws(() => [].none.none)),
    equal: () => a.equal(1, 2),
    strict_equal: () => s.equal("1", 1),
    strictly_equal: () => a.strictEqual(1, 2),
    deep_equal: () => s.deepEqual({ a: [1] }, { a: [2] }),
    deep_strict_equal: () => a.deepStrictEqual([1], [2]),
    truth: () => a(0),
    ok: () => s.ok(null),
    throws: () => a.throws(() => 1),
    rejects: () => a.rejects(Promise.resolve(1)),
    required_equal: () => r.equal(1, 2),
    required_deep: () => r.deepStrictEqual({ a: 1 }, { a: 2 }),
    required_throws: () => r.throws(() => 1),
    exception: () => [].none.none,
    rejected: () => Promise.reject(new Error("planted")),
    fail: () => a.fail("planted"),
    skip: (t) => t.skip("planted"),
  };
  return bodies;
}

// --- the detectors -----------------------------------------------------------------------------------------

const remembered = [];
const descriptor = Object.getOwnPropertyDescriptor;

/** Remember the functions of the machinery and the language, and listen to reads of the hidden files. */
function watch() {
  const spaces = { assert, "assert.strict": assert.strict, Module, "Module.prototype": Module.prototype };
  spaces["Module._extensions"] = Module._extensions;
  for (const name of ["util", "events", "stream", "crypto", "path", "url"]) {
    spaces[name] = process.getBuiltinModule?.(name) ?? createRequire(root + "/")(name);
  }
  const classes = [Object, Function, Array, String, Number, Boolean, Map, Set, Promise, RegExp, Error, Symbol];
  for (const each of [...classes, Date, Reflect, JSON, Math, spaces.events, spaces.stream]) {
    const name = each.name ?? each[Symbol.toStringTag];
    spaces[name] = each;
    if (each.prototype) spaces[`${name}.prototype`] = each.prototype;
  }
  spaces["assert.AssertionError.prototype"] = assert.AssertionError.prototype;
  const stream = nodeTest.run({ files: [] }); // the stream by which the runner reports: its class is not exported
  for (let proto = Object.getPrototypeOf(stream); proto && proto !== Object.prototype; ) {
    spaces[`${proto.constructor.name} of the runner`] = proto;
    proto = Object.getPrototypeOf(proto);
  }
  for (const [where, space] of Object.entries(spaces)) {
    for (const [key, each] of Object.entries(Object.getOwnPropertyDescriptors(space))) {
      const free = where === "Error" && ["stackTraceLimit", "prepareStackTrace"].includes(key);
      if (!free) remembered.push({ where, space, key, before: each.value ?? each.get });
    }
  }
  guardStack();
  for (const space of [fs, fs.promises]) {
    for (const key of ["readFile", "open", "createReadStream", "copyFile", "link", "rename", "cp"]) {
      for (const name of [key, `${key}Sync`]) if (space[name]) space[name] = listening(space[name]);
    }
  }
  // A stream opens its file later, when nobody who asked for it is on the stack any more.
  for (const name of ["ReadStream", "FileReadStream"]) {
    if (fs[name]) fs[name] = Object.assign(listening(fs[name]), { prototype: fs[name].prototype });
  }
  const hooks = createRequire(root + "/")("async_hooks");
  for (const name of ["executionAsyncResource", "createHook"]) hooks[name] = showing(hooks[name]);
  const load = Module._load;
  Module._load = function (request, ...rest) {
    const reader = /^(node:)?(inspector|v8)\b/.test(request) ? callerAmongChanged(true) : null;
    if (reader) sign(`${path.basename(reader)} reaches for ${request}`);
    return Reflect.apply(load, this, [request, ...rest]);
  };
  remembered.find(({ space, key }) => space === Module && key === "_load").before = Module._load;
  Module.syncBuiltinESMExports();
}

function listening(read) {
  return function (file, ...rest) {
    if (typeof file === "string" || file instanceof URL || Buffer.isBuffer(file)) {
      const given = file instanceof URL ? file.pathname : path.resolve(String(file));
      const name = real(given);
      const leads = hidden.includes(name) || /^\/proc\/(self|thread-self)\//.test(given);
      const reader = leads ? callerAmongChanged() : null;
      if (reader) sign(`${path.basename(reader)} reaches for ${name.startsWith("/proc") ? "/proc" : "the hidden tests"}`);
    }
    return Reflect.apply(read, this, [file, ...rest]);
  };
}

/** Notice when a changed file asks for the resources of asynchronous work: the runner's tests are among them. */
function showing(ask) {
  return function (...given) {
    const reader = callerAmongChanged();
    if (reader) sign(`${path.basename(reader)} reaches for the tests of the runner`);
    return Reflect.apply(ask, this, given);
  };
}

const { realpathSync } = fs;

/** Return the path of a file without links, or as it is where there is no file. */
function real(name) {
  try {
    return realpathSync(name);
  } catch {
    return name;
  }
}

/** Let the test files be strict code, whose functions do not show themselves to those that they call. */
function makeStrict() {
  const load = Module._extensions[".js"];
  Module._extensions[".js"] = function (module, filename) {
    if (!hidden.includes(filename)) return Reflect.apply(load, this, [module, filename]);
    const compile = module._compile;
    module._compile = function (text, ...rest) {
      delete module._compile;
      return Reflect.apply(compile, module, [`"use strict";${text}`, ...rest]);
    };
    return Reflect.apply(load, this, [module, filename]);
  };
}

let prepareStackTrace = Error.prepareStackTrace;

/** Notice when a changed file takes the stack apart: it leads to the functions of the tests, and to their text. */
function guardStack() {
  const set = (value) => {
    const reader = value && callerAmongChanged();
    if (reader) sign(`${path.basename(reader)} reaches for the functions that call it`);
    prepareStackTrace = value;
  };
  Object.defineProperty(Error, "prepareStackTrace", { get: () => prepareStackTrace, set, configurable: false });
}

/** Return the changed file nearest on the stack, unless the loader is nearer; of a `require`, whoever calls it. */
function callerAmongChanged(required = false) {
  const [limit, prepared] = [Error.stackTraceLimit, prepareStackTrace];
  Error.stackTraceLimit = 100;
  prepareStackTrace = undefined;
  const lines = String(new Error().stack).split("\n").slice(3);
  Error.stackTraceLimit = limit;
  prepareStackTrace = prepared;
  for (const line of lines) {
    const internal = /node:internal\/modules/.test(line);
    if (internal && !required) return null;
    const changed = known.find((each) => line.includes(each));
    if (changed || (required && !internal)) return changed ?? null;
  }
  return null;
}

function check() {
  for (let at = 0; at < remembered.length; at += 1) {
    const { where, space, key, before } = remembered[at]; // an iterator could be the candidate's
    const now = descriptor(space, key);
    if (typeof before === "function" && (now?.value ?? now?.get) !== before) sign(`${where}.${String(key)} was changed`);
  }
}

// --- the tests, collected file by file ---------------------------------------------------------------------

let collected = null; // the calls of the file that is being loaded, or null: tests then go to the runner
const METHODS = ["test", "it", "describe", "suite", "before", "after", "beforeEach", "afterEach"];

/** Return `node:test` for test files: its calls at the top of a file are kept, to be made in the planned order. */
function collecting() {
  const wrap = (method, variant) => (...given) => {
    const real = nodeTest[method === "test" && !nodeTest.test ? "it" : method];
    const call = () => (variant ? real[variant] : real)(...given);
    if (collected === null) return call();
    const named = given.find((each) => typeof each === "string") ?? given.find((each) => typeof each === "function")?.name;
    collected.push({ method, name: named ?? "", call });
    return Promise.resolve();
  };
  const made = { ...nodeTest };
  for (const method of METHODS) {
    made[method] = wrap(method);
    for (const variant of ["skip", "todo", "only"]) made[method][variant] = wrap(method, variant);
  }
  return Object.assign(wrap("test"), made, { default: undefined });
}

/** Let every `import` and `require` of `node:test` in test files get `collecting()`. */
async function serve(tests) {
  const secret = randomBytes(16).toString("hex");
  globalThis[secret] = tests;
  const names = Object.keys(tests).filter((name) => name !== "default");
  const text = `const t = globalThis["${secret}"]; export default t; export const {${names}} = t;`;
  const url = `data:text/javascript,${encodeURIComponent(text)}`;
  await import(url);
  delete globalThis[secret];
  const hook = `export const resolve = (name, context, next) => name === "node:test"
    ? { url: ${JSON.stringify(url)}, shortCircuit: true } : next(name, context);`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
  const load = Module._load;
  Module._load = function (request, ...rest) {
    return request === "node:test" ? tests : Reflect.apply(load, this, [request, ...rest]);
  };
}

const calls = new Map();

async function collect(file) {
  collected = [];
  try {
    await import(pathToFileURL(path.join(root, file)));
    calls.set(file, collected);
  } catch (error) {
    send({ uncollected: file, why: `${error?.name}: ${error?.message}`.slice(0, 300) });
  }
  collected = null;
}

// --- the runner's events -----------------------------------------------------------------------------------

const outcomes = new Map(); // the outcome of each id of the file that runs
const ends = new Map(); // the name of a test at the top: what to call when it has ended

/** Read the events of the runner; each test's id is the names of the tests around it. */
async function* reporter(source) {
  const around = [];
  for await (const { type, data } of source) {
    if (type === "test:start") {
      around.length = data.nesting;
      around.push(data.name);
    } else if (type === "test:pass" || type === "test:fail") {
      around.length = data.nesting;
      const id = [...around, data.name].join("::");
      const other = data.skip !== undefined && data.skip !== false ? "skipped" : data.todo ? "failed" : null;
      const outcome = other ?? (type === "test:pass" ? "passed" : "failed");
      if (outcomes.get(id) === undefined || outcome !== "passed") outcomes.set(id, outcome);
      if (data.nesting === 0) ends.get(data.name)?.();
    }
  }
}

const ended = (name, begin) => new Promise((resolve) => (ends.set(name, resolve), begin()));

// --- the run -----------------------------------------------------------------------------------------------

/** Run the planned tests of one file in one suite, its planted ones among them, and report all by their place. */
async function run(file, bodies) {
  const entries = calls.get(file);
  if (entries === undefined) return;
  const hooks = entries.filter(({ method }) => /^(before|after)/.test(method));
  const planned = order.map(([id, kind], place) => ({ names: id.split("::"), kind, place }));
  const ours = planned.filter(({ names }) => names[0] === file);
  const taken = new Set();
  const begin = [];
  const apart = [];
  for (const each of ours) {
    const entry = entries.find(({ method, name }) => name === each.names[1] && !/^(before|after)/.test(method));
    if (entry === undefined) continue;
    if (each.kind) {
      const name = each.names.at(-1) + "\u200b".repeat(1 + each.place);
      each.id = hooks.length ? name : `${file}::${name}`;
      (hooks.length ? apart : begin).push([name, bodies[each.kind]]);
    } else {
      each.id = each.names.join("::");
      if (!taken.has(entry)) begin.push(entry);
      taken.add(entry);
    }
  }
  const make = (each) => (Array.isArray(each) ? nodeTest(each[0], each[1]) : each.call());
  await ended(file, () =>
    nodeTest.describe(file, () => {
      for (const each of hooks) each.call();
      for (const each of begin) make(each);
    }),
  );
  for (const each of apart) await ended(each[0], () => make(each));
  for (const { id, place } of ours) if (outcomes.has(id)) send({ at: place, outcome: outcomes.get(id) });
}

/** Start the runner with our reporter, before anything of the repository is loaded. */
async function prepare() {
  globalThis[Symbol.for("reporter")] = reporter;
  await ended("start", () => nodeTest("start", () => {}));
  delete globalThis[Symbol.for("reporter")];
  await serve(collecting());
  makeStrict();
  watch();
}

await prepare();
process.chdir(root);
send({ begun: true });
const files = [...new Set(order.map(([id]) => id.split("::")[0]))];
for (const file of files) await collect(file);
const bodies = await plantedTests();
for (const [, kind] of order) if (kind && !bodies[kind]) throw new Error(`no planted test ${kind}`);
for (const file of files) await run(file, bodies);
check();
send({ done: true });
