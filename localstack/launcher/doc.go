// Command launcher starts what stands in for the clouds, keeps it running in the background, and ends it.
//
//	go run ./localstack/launcher up [-free] [-dir localstack/.run] [-aws 4566] [-dynalite 8000] [-azurite 10000] [-consul 8500]
//	go run ./localstack/launcher down [-dir localstack/.run]
//	go run ./localstack/launcher endpoints                       says where things would be, for compose.yaml
//
// Up starts a supervisor, which starts ministack (AWS), dynalite (DynamoDB), Azurite (Azure Blob Storage) and Consul from the
// pinned manifests, all at once and on the loopback address only, and asks each whether it works. It returns when all do. A second
// up finds the first one's supervisor and says where things are. With -free every port is a free one, so that nothing collides.
//
// In the directory are then
//
//	endpoints.env   where everything is, as the SDKs and the tests of this project read it from their environment
//	pid             the supervisor's process
//	logs/           what each process prints
//	lock            held by the supervisor as long as it lives, and by nobody else: how up and down know
//
// What ends, and what with it:
//
//	down                        SIGTERM to the supervisor, which kills its engines and waits for them; SIGKILL after 20 s
//	the supervisor is killed    the kernel kills the engines (Linux), or they end when their standard input does
//	ministack ends              the functions that it runs end with it
//	an engine ends by itself    the supervisor says so in its log and ends all: half a cloud would only puzzle
//
// Everything is in memory: what was made is gone after down.
package main
