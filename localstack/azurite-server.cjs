// Azurite's blob service on the loopback address, in memory.
//
//   node azurite-server.cjs [--port N] [--cert FILE --key FILE] [--parent]
//
// --port    where to listen; 0 (the default) takes a free port
// --cert    serve HTTPS with this certificate and its --key (PEM), and accept bearer tokens beside keys and signatures
// --parent  end when standard input ends, that is, when the process that started this one is gone
//
// The first line on standard output says where it listens: "azurite on http://127.0.0.1:PORT".
'use strict'

const { parseArgs } = require('node:util')

const major = Number(process.versions.node.split('.')[0])
if (major < 20) fail(`Node.js 20 or later is needed, this is ${process.versions.node}`)

const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    cert: { type: 'string' },
    key: { type: 'string' },
    parent: { type: 'boolean', default: false },
  },
})

process.argv.splice(2, Infinity,
  '--blobHost', '127.0.0.1', '--blobPort', options.port, '--silent', '--disableTelemetry', '--disableProductStyleUrl',
  '--inMemoryPersistence', '--skipApiVersionCheck',
  ...(options.cert ? ['--cert', options.cert, '--key', options.key, '--oauth', 'basic'] : []))

const say = console.log
console.log = (line) => {
  const listening = /listens on (\S+)/.exec(String(line))
  if (listening) say(`azurite on ${listening[1]}`)
}
if (options.parent) process.stdin.on('end', () => process.exit(0)).resume()

try {
  require('azurite/dist/src/blob/main.js')
} catch (err) {
  fail(`cannot load azurite, run "make setup": ${err.message.split('\n')[0]}`)
}

function fail (message) {
  console.error('azurite-server: ' + message)
  process.exit(1)
}
