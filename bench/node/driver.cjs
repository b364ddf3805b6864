// Drives dynamodb-lock-client by the lines that bench/drive/doc.go describes. Arguments: subject, URL, table, TTL in milliseconds.
"use strict";

process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = "1";
const http = require("node:http");
const readline = require("node:readline");
const AWS = require("aws-sdk");
const { FailOpen } = require("dynamodb-lock-client");
const { version } = require("dynamodb-lock-client/package.json");

const [, , , endpoint, table, ttl] = process.argv;
const leaseDurationMs = Number(ttl);
const dynamodb = new AWS.DynamoDB.DocumentClient({
  endpoint,
  region: "eu-west-1",
  credentials: new AWS.Credentials("test", "test"),
  httpOptions: { agent: new http.Agent({ keepAlive: true, maxSockets: 256 }) },
});

class Client {
  constructor() {
    this.held = new Map();
    // Its only wait is by retries: as many as it takes.
    this.waits = this.library(1e9);
    this.once = this.library(0);
  }

  library(retryCount) {
    return new FailOpen({
      dynamodb, lockTable: table, partitionKey: "id", leaseDurationMs, heartbeatPeriodMs: Math.floor(leaseDurationMs / 3), retryCount,
    });
  }

  acquire(lock, library = this.waits) {
    return new Promise((resolve, reject) => {
      library.acquireLock(lock, (err, held) => {
        if (err) {
          reject(err.code === "FailedToAcquireLock" ? "held" : err);
          return;
        }
        held.on("error", () => {});
        this.held.set(lock, held);
        resolve();
      });
    });
  }

  try(lock) {
    return this.acquire(lock, this.once);
  }

  renew() {
    return Promise.reject("no");
  }

  release(lock) {
    const held = this.held.get(lock);
    this.held.delete(lock);
    return new Promise((resolve, reject) => held.release((err) => (err ? reject(err) : resolve())));
  }

  // The lock around the job: nothing remembers that it ran.
  async deliver(job) {
    await this.try(job);
    await this.release(job);
  }
}

const clients = new Map();

async function run(line) {
  const [id, op, name, ...args] = line.split(" ");
  if (!clients.has(name)) {
    clients.set(name, new Client());
  }
  const began = process.hrtime.bigint();
  let answer = "ok";
  let text = "";
  try {
    if (op !== "open") {
      await clients.get(name)[op](...args);
    }
  } catch (err) {
    answer = err === "held" || err === "no" ? err : "error";
    text = answer === "error" ? ` ${String(err).replaceAll("\n", " ")}` : "";
  }
  process.stdout.write(`${id} ${answer} ${process.hrtime.bigint() - began}${text}\n`);
}

process.stdout.write(`ready dynamodb-lock-client ${version}\n`);
readline.createInterface({ input: process.stdin }).on("line", run).on("close", () => process.exit(0));
