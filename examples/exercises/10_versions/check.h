inline void check() {
  for (const Program& program : programs)
    if (program.answer == unknown) todo(std::string("program ") + program.text + "; does it raise?");
  for (const Program& program : programs) {
    std::string message;
    try {
      program.run(gradus::rand({3}).requires_grad_());
    } catch (const gradus::Error& error) { message = error.what(); }
    require((program.answer == raises) == !message.empty(), "program ", program.text, ": ",
            message.empty() ? "it is fine: nothing that backward needs was written" : "it raises: " + message);
  }
}
