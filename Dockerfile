# Debian 12 with gradus built, and LeNet trained on MNIST (without a network: on digits that the library draws).
#
#   docker build -t gradus .
#   docker run --rm gradus scripts/mnist.sh --evaluate
#   docker run --rm -v "$PWD:/photographs" gradus scripts/mnist.sh --predict /photographs/seven.jpg
FROM debian:12
WORKDIR /gradus
COPY scripts/install_dependencies.sh scripts/
RUN scripts/install_dependencies.sh build download report && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/mnist.sh
CMD ["bash"]
